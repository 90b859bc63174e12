//! The steps that are possible in a state, and the promises after each step.

use super::normal::{normalize, renamed};
use super::setup::Setup;
use super::state::{ClaimId, Phase, State, Violation};
use super::step::Step;
use lease_test_servers::search::{Model, Taken, fingerprint};

pub(crate) struct Protocol {
    setup: Setup,
    orders: Vec<Order>,
}

pub(crate) type Order = ([usize; super::state::WORKERS], [usize; super::state::SHARDS]);

impl Protocol {
    pub(crate) fn new(setup: &Setup) -> Self {
        setup.check();
        let shards = setup.shard_orders();
        let orders = setup.worker_orders().into_iter();
        let orders = orders.flat_map(|workers| shards.iter().map(move |shards| (workers, *shards)));
        Self { setup: *setup, orders: orders.collect() }
    }
}

impl Model for Protocol {
    type State = State;
    type Step = Step;
    type Violation = Violation;

    fn first_state(&self) -> State {
        State::default()
    }

    fn take_all(&self, state: &State, taken: &mut Vec<Taken<Self>>) {
        taken.clear();
        let mut steps = Steps { setup: &self.setup, state: *state, taken };
        for worker in (0..).take(self.setup.workers) {
            steps.change_session(worker);
            steps.act(worker);
            steps.deliver(worker);
        }
    }

    /// Ignores the order of shards, and of workers with the same limits.
    fn fingerprint(&self, state: &State) -> u64 {
        match self.orders.as_slice() {
            [_] => fingerprint(state),
            orders => orders.iter().map(|it| fingerprint(&renamed(state, it))).min().unwrap(),
        }
    }
}

pub(crate) struct Steps<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) state: State,
    taken: &'a mut Vec<Taken<Protocol>>,
}

impl Steps<'_> {
    pub(crate) fn then(&mut self, step: Step, change: impl FnOnce(&mut State)) {
        self.then_checked(step, |state| {
            change(state);
            None
        });
    }

    /// `change` returns the promise that the step breaks, if any.
    pub(crate) fn then_checked(
        &mut self,
        step: Step,
        change: impl FnOnce(&mut State) -> Option<Violation>,
    ) {
        let mut state = self.state;
        let violation = change(&mut state).or_else(|| broken(&state, self.setup));
        normalize(self.setup, &mut state);
        self.taken.push(Taken { step, state, violation });
    }
}

fn broken(state: &State, setup: &Setup) -> Option<Violation> {
    for (number, shard) in (0..).zip(&state.shards) {
        let relies = |claim: &&ClaimId| relies(state, **claim, number);
        if all_claims(setup).collect::<Vec<_>>().iter().filter(relies).count() > 1 {
            return Some(Violation::HeldByTwo);
        }
        let Some(holder) = shard.holder else { continue };
        let worker = &state.workers[usize::from(holder.worker)];
        let claim = state.claim(holder);
        let is_of_live_session = worker.is_live && worker.row.token == claim.session;
        if is_of_live_session && claim.phase == Phase::Over {
            return Some(Violation::Orphaned);
        }
    }
    None
}

fn relies(state: &State, id: ClaimId, shard: u8) -> bool {
    let claim = state.claim(id);
    claim.phase == Phase::Holding
        && claim.shard == shard
        && state.workers[usize::from(id.worker)].is_live
}

fn all_claims(setup: &Setup) -> impl Iterator<Item = ClaimId> {
    let workers = (0..).zip(setup.claims).take(setup.workers);
    workers.flat_map(|(worker, claims)| {
        (0..).take(claims).map(move |number| ClaimId { worker, number })
    })
}
