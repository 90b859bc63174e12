//! The reading part of a tick.

use super::setup::{Rule, Setup};
use super::state::{Holder, Process, SESSIONS, Session, State, Unclear, WORKERS};

impl State {
    pub(crate) fn look(&mut self, setup: &Setup, me: usize) {
        self.read_counters(setup, me);
        self.watch_ring(setup, me);
        let is_gap = self.read_workers(setup, me);
        let process = &mut self.processes[me];
        let is_expiring = process.shard == Holder::Expiring && setup.has(Rule::ExpiringIsRead);
        if process.must_list || is_gap || is_expiring || process.is_doubtful {
            self.read_shard(setup, me);
        }
    }

    fn read_counters(&mut self, setup: &Setup, me: usize) {
        let counters = self.counters;
        let process = &mut self.processes[me];
        for (worker, slot) in slots() {
            let (listed, count) = (&mut process.listed[worker][slot], counters[worker][slot]);
            listed.count = count;
            if count > 0 && !listed.is_known {
                listed.is_known = true;
                listed.token = u8::try_from(slot + 1).unwrap_or(u8::MAX);
            }
            // An ended session is forgotten when its counter is gone.
            if count == 0 && listed.has_ended {
                *listed = super::state::Listed::default();
            }
        }
        let own = Session { worker: me, token: process.token };
        let is_counted = counters[me][own.slot(setup)] > 0;
        if !is_counted && setup.has(Rule::LostCounterReturns) {
            process.must_count = true;
        }
        for token in 1..own.token {
            let slot = Session { token, ..own }.slot(setup);
            if slot != own.slot(setup) {
                self.counters[me][slot] = 0;
            }
        }
    }

    /// Ends the successor, if it is over, and the sessions after it. Also ends sessions without a counter.
    fn watch_ring(&mut self, setup: &Setup, me: usize) {
        let own = (me, Session { worker: me, token: self.processes[me].token }.slot(setup));
        let after =
            slots().filter(|place| *place > own).chain(slots().filter(|place| *place < own));
        let mut is_past_successor = false;
        for (worker, slot) in after {
            let listed = self.processes[me].listed[worker][slot];
            let is_counted = listed.count > 0;
            let is_in_ring = is_counted || setup.has(Rule::UncountedStaysInRing);
            let is_watched =
                !is_past_successor || !is_counted && setup.has(Rule::UncountedIsWatched);
            if worker == me || !listed.is_known || !is_in_ring || !is_watched {
                continue;
            }
            if !listed.has_ended && !self.ends(setup, Session { worker, token: listed.token }) {
                is_past_successor = true;
                continue;
            }
            let listed = &mut self.processes[me].listed[worker][slot];
            (listed.has_ended, listed.is_member) = (true, false);
            self.counters[worker][slot] = 0;
        }
    }

    /// Returns whether notices are missing.
    fn read_workers(&mut self, setup: &Setup, me: usize) -> bool {
        let mut is_gap = false;
        for (worker, slot) in slots().filter(|(worker, _)| *worker != me) {
            let row = self.rows[worker];
            let process = &mut self.processes[me];
            let listed = &mut process.listed[worker][slot];
            if !listed.is_known || listed.has_ended || listed.read == Some(listed.count) {
                continue;
            }
            listed.read = Some(listed.count);
            if !setup.has(Rule::CounterNamesSession) && row.token > listed.token {
                (listed.token, listed.noticed) = (row.token, 0);
            }
            let is_over = row.token > listed.token || !row.is_absent && !row.is_held;
            if is_over {
                (listed.has_ended, listed.is_member) = (true, false);
            } else if row.is_absent || row.has_expired {
                listed.is_member = false;
                listed.has_ended = listed.count == 0;
            } else {
                listed.is_member = true;
                let missed = row.notices.last - listed.noticed;
                listed.noticed = row.notices.last;
                is_gap |= missed > row.notices.kept && setup.has(Rule::GapLists);
                process.is_doubtful |= missed > 0 && row.notices.kept > 0;
            }
        }
        is_gap
    }

    fn read_shard(&mut self, setup: &Setup, me: usize) {
        let own = Holder::Session(Session { worker: me, token: self.processes[me].token });
        let (shard, process) = (self.shard, &mut self.processes[me]);
        (process.shard, process.must_list) = (shard, false);
        let is_abandoned = shard == own && !process.reads;
        process.is_doubtful = is_abandoned;
        if !is_abandoned && process.claim == Unclear::Released {
            process.claim = Unclear::None;
            if setup.has(Rule::SettledIsReported) {
                process.report();
            }
        }
    }
}

impl Process {
    pub(crate) fn believes_held(&self, setup: &Setup, me: usize) -> bool {
        match self.shard {
            Holder::Free => false,
            Holder::Expiring => true,
            Holder::Session(session) if session.worker == me => session.token == self.token,
            Holder::Session(session) => {
                let listed = self.listed[session.worker][session.slot(setup)];
                listed.is_known && !listed.has_ended && listed.token == session.token
            }
        }
    }
}

impl Session {
    pub(crate) fn slot(self, setup: &Setup) -> usize {
        let slot = usize::from(self.token).saturating_sub(1);
        if setup.has(Rule::CounterNamesSession) { slot } else { 0 }
    }
}

pub(crate) fn slots() -> impl Iterator<Item = (usize, usize)> {
    (0..WORKERS).flat_map(|worker| (0..SESSIONS).map(move |slot| (worker, slot)))
}
