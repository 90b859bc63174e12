//! The other actions of a worker.

use super::setup::{Rule, Setup};
use super::state::{Holder, Notices, Process, Session, State, Unclear, WORKERS};

impl State {
    pub(crate) fn obtain(&mut self, me: usize) {
        let token = self.obtain_session(me);
        let process = &mut self.processes[me];
        (process.token, process.notices) = (token, Notices::default());
        (process.counted, process.must_restore) = (0, false);
        (process.must_write, process.must_count, process.must_list) = (true, true, true);
    }

    pub(crate) fn write(&mut self, me: usize) {
        let process = &mut self.processes[me];
        process.must_write = false;
        self.rows[me].notices = process.notices;
    }

    pub(crate) fn count(&mut self, setup: &Setup, me: usize) {
        let (process, counter) = self.counter(setup, me);
        let before = process.counted;
        *counter += 1;
        process.counted = (before + 1).max(*counter);
        process.must_restore = *counter <= before && setup.has(Rule::ReturnedCounterExceeds);
        process.must_count = process.must_restore;
    }

    pub(crate) fn count_without_answer(&mut self, setup: &Setup, me: usize) {
        let (process, counter) = self.counter(setup, me);
        *counter += 1;
        process.counted += u8::from(setup.has(Rule::UnansweredCountIsCounted));
    }

    pub(crate) fn restore_counter(&mut self, setup: &Setup, me: usize) {
        let (process, counter) = self.counter(setup, me);
        *counter = process.counted;
        (process.must_restore, process.must_count) = (false, false);
    }

    fn counter(&mut self, setup: &Setup, me: usize) -> (&mut Process, &mut u8) {
        let process = &mut self.processes[me];
        let slot = Session { worker: me, token: process.token }.slot(setup);
        (process, &mut self.counters[me][slot])
    }

    /// Claims the shard, if it seems free, and this worker is the first member. Returns whether the claim was
    /// refused.
    pub(crate) fn act(&mut self, setup: &Setup, me: usize) -> bool {
        let process = self.processes[me];
        if process.reads || process.believes_held(setup, me) || !process.is_first(me) {
            return false;
        }
        let own = Session { worker: me, token: process.token };
        let is_granted = self.is_granted(own);
        let process = &mut self.processes[me];
        if is_granted {
            (process.reads, process.shard) = (true, Holder::Session(own));
            process.report();
        } else if setup.has(Rule::RefusedIsRead) {
            process.is_doubtful = true;
        }
        !is_granted
    }

    /// The claim is applied, but not answered.
    pub(crate) fn claim_without_answer(&mut self, me: usize) {
        let own = Session { worker: me, token: self.processes[me].token };
        if self.is_granted(own) {
            let process = &mut self.processes[me];
            (process.claim, process.is_doubtful) = (Unclear::Pending, true);
        }
    }

    pub(crate) fn settle(&mut self, me: usize) {
        self.release(Session { worker: me, token: self.processes[me].token });
        self.processes[me].claim = Unclear::Released;
    }

    pub(crate) fn hand_over(&mut self, me: usize) {
        self.release(Session { worker: me, token: self.processes[me].token });
        let process = &mut self.processes[me];
        (process.reads, process.shard) = (false, Holder::Free);
        process.report();
    }

    pub(crate) fn lose_session(&mut self, me: usize) {
        let process = &mut self.processes[me];
        (process.token, process.reads, process.claim) = (0, false, Unclear::None);
        process.must_restore = false;
    }
}

impl Process {
    pub(crate) fn report(&mut self) {
        self.notices.last += 1;
        self.notices.kept = 1;
        // A count includes its restoration. It begins anew after the write.
        (self.must_write, self.must_count, self.must_restore) = (true, true, false);
    }

    pub(crate) fn forget_notices(&mut self) {
        self.notices.kept = 0;
        self.must_write = true;
    }

    pub(crate) fn may_count(&self, setup: &Setup) -> bool {
        let is_written = !self.must_write || !setup.has(Rule::WriteBeforeCount);
        self.must_count && is_written && !self.must_restore
    }

    fn is_first(&self, me: usize) -> bool {
        (0..WORKERS).take(me).all(|other| self.listed[other].iter().all(|it| !it.is_member))
    }
}
