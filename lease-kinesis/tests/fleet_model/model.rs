//! The steps that are possible in a state, and the promises after each step.

use super::setup::{FirstLease, Rule, Setup};
use super::state::{Holder, Process, SESSIONS, State, Unclear, Violation};
use super::step::{Action, Step};
use lease_test_servers::search::{Model, Taken, fingerprint};

pub(crate) struct Fleet {
    pub(crate) setup: Setup,
}

impl Model for Fleet {
    type State = State;
    type Step = Step;
    type Violation = Violation;

    fn first_state(&self) -> State {
        let mut processes = [Process::default(); super::state::WORKERS];
        for process in processes.iter_mut().take(self.setup.workers) {
            process.is_alive = true;
        }
        let shard = match self.setup.first_lease {
            FirstLease::None => Holder::Free,
            FirstLease::OfEarlierMode => Holder::Expiring,
        };
        let (rows, counters, faults) = Default::default();
        State { rows, counters, shard, processes, faults }
    }

    fn take_all(&self, state: &State, taken: &mut Vec<Taken<Self>>) {
        taken.clear();
        let mut steps = Steps { setup: &self.setup, state: *state, taken };
        for me in 0..self.setup.workers {
            steps.work(me);
            steps.fail(me);
        }
        if state.shard == Holder::Expiring {
            steps.then(Step::ExpiringLeaseEnds, |state| state.shard = Holder::Free);
        }
        let claimed = state.faults.claims_of_earlier_mode;
        if state.shard == Holder::Free && claimed < self.setup.claims_of_earlier_mode {
            steps.then(Step::EarlierModeObtains, |state| {
                state.shard = Holder::Expiring;
                state.faults.claims_of_earlier_mode += 1;
            });
        }
        let may_remove = state.faults.removed_rows < self.setup.removed_rows;
        if may_remove && state.counters.iter().flatten().any(|count| *count > 0) {
            steps.then(Step::CountersAreRemoved, |state| {
                state.counters = Default::default();
                state.faults.removed_rows += 1;
            });
        }
    }

    fn fingerprint(&self, state: &State) -> u64 {
        fingerprint(state)
    }
}

struct Steps<'a> {
    setup: &'a Setup,
    state: State,
    taken: &'a mut Vec<Taken<Fleet>>,
}

impl Steps<'_> {
    fn then(&mut self, step: Step, change: impl FnOnce(&mut State)) {
        let mut state = self.state;
        change(&mut state);
        let violation = violation(self.setup, state);
        self.taken.push(Taken { step, state, violation });
    }

    fn act(&mut self, me: usize, action: Action, change: impl FnOnce(&mut State)) {
        self.then(Step::Worker(me, action), change);
    }

    fn work(&mut self, me: usize) {
        let (setup, process) = (self.setup, self.state.processes[me]);
        if !process.is_alive {
            return;
        }
        if process.token == 0 {
            let has_next = usize::from(self.state.rows[me].token) < SESSIONS;
            if has_next && self.state.can_obtain_session(me) {
                self.act(me, Action::ObtainsSession, |state| state.obtain(me));
            }
            return;
        }
        if process.must_write && (setup.has(Rule::WriteBeforeCount) || !process.must_count) {
            self.act(me, Action::Writes, |state| state.write(me));
        }
        if process.may_count(setup) {
            self.act(me, Action::Counts, |state| state.count(setup, me));
        }
        if process.must_restore {
            self.act(me, Action::RestoresCounter, |state| state.restore_counter(setup, me));
        }
        self.act(me, Action::Looks, |state| state.look(setup, me));
        if !process.must_count && !process.must_list {
            self.act(me, Action::Acts, |state| _ = state.act(setup, me));
        }
        if process.notices.kept > 0 && !process.must_write && !process.must_count {
            self.act(me, Action::ForgetsNotices, |state| state.processes[me].forget_notices());
        }
        if process.claim == Unclear::Pending {
            self.act(me, Action::SettlesClaim, |state| state.settle(me));
        }
        if process.reads && self.state.faults.hand_overs < setup.hand_overs {
            self.act(me, Action::HandsOver, |state| {
                state.hand_over(me);
                state.faults.hand_overs += 1;
            });
        }
    }

    fn fail(&mut self, me: usize) {
        let (setup, faults, row) = (self.setup, self.state.faults, self.state.rows[me]);
        let process = self.state.processes[me];
        if process.is_alive && process.token > 0 && faults.crashes < setup.crashes {
            self.act(me, Action::Crashes, |state| {
                state.processes[me] = Process::default();
                state.faults.crashes += 1;
            });
        }
        if !process.is_alive && faults.restarts < setup.restarts {
            self.act(me, Action::Restarts, |state| {
                state.processes[me].is_alive = true;
                state.faults.restarts += 1;
            });
        }
        if process.token > 0 && faults.lost_sessions < setup.lost_sessions {
            self.act(me, Action::LosesSession, |state| {
                state.lose_session(me);
                state.faults.lost_sessions += 1;
            });
        }
        if row.is_held && !row.has_expired && process.token == 0 {
            self.act(me, Action::SessionExpires, |state| state.rows[me].has_expired = true);
        }
        let is_over = row.token > 0 && !row.is_absent && (row.has_expired || !row.is_held);
        if is_over && faults.removed_rows < setup.removed_rows {
            self.act(me, Action::RowIsRemoved, |state| {
                state.rows[me].is_absent = true;
                state.faults.removed_rows += 1;
            });
        }
        if process.may_count(setup) && faults.unanswered_counts < setup.unanswered_counts {
            self.act(me, Action::CountsWithoutAnswer, |state| {
                state.count_without_answer(setup, me);
                state.faults.unanswered_counts += 1;
            });
        }
        let may_claim = process.token > 0 && !process.reads && process.claim == Unclear::None;
        if may_claim && !process.must_list && faults.unclear_claims < setup.unclear_claims {
            self.act(me, Action::ClaimsWithoutAnswer, |state| {
                state.claim_without_answer(me);
                state.faults.unclear_claims += 1;
            });
        }
    }
}

/// Stops all faults, and lets the live workers tick.
fn violation(setup: &Setup, mut state: State) -> Option<Violation> {
    if state.processes.iter().all(|process| !process.is_alive) {
        return None;
    }
    if state.shard == Holder::Expiring {
        let mut lasting = state;
        if tick_all(setup, &mut lasting) {
            return Some(Violation::Repeated);
        }
        state.shard = Holder::Free;
    }
    if tick_all(setup, &mut state) {
        return Some(Violation::Repeated);
    }
    let is_read = |(me, process): (usize, &Process)| {
        let holds = |session: super::state::Session| {
            session.worker == me && session.token == process.token && process.reads
        };
        matches!(state.shard, Holder::Session(session) if holds(session))
    };
    if !state.processes.iter().enumerate().any(is_read) {
        return Some(Violation::Orphaned);
    }
    let mut live = state.processes.iter().enumerate().filter(|(_, process)| process.token > 0);
    let is_right =
        |me, process: &Process| process.shard == state.shard && process.believes_held(setup, me);
    live.any(|(me, process)| !is_right(me, process)).then_some(Violation::Mistaken)
}

/// Returns whether a claim was refused in the last round.
fn tick_all(setup: &Setup, state: &mut State) -> bool {
    let mut is_refused = false;
    for _round in 0..ROUNDS {
        is_refused = false;
        for me in 0..setup.workers {
            is_refused |= tick(setup, state, me);
        }
    }
    is_refused
}

/// Returns whether a claim was refused.
fn tick(setup: &Setup, state: &mut State, me: usize) -> bool {
    if state.processes[me].token == 0 {
        if state.rows[me].is_held {
            state.rows[me].has_expired = true;
        }
        let has_next = usize::from(state.rows[me].token) < SESSIONS;
        if !state.processes[me].is_alive || !has_next {
            return false;
        }
        state.obtain(me);
    }
    if state.processes[me].claim == Unclear::Pending {
        state.settle(me);
    }
    if state.processes[me].must_write {
        state.write(me);
    }
    if state.processes[me].may_count(setup) {
        state.count(setup, me);
    }
    if state.processes[me].must_restore {
        state.restore_counter(setup, me);
    }
    state.look(setup, me);
    state.act(setup, me)
}

/// Enough for a notice of a notice.
const ROUNDS: usize = 6;
