//! The steps that are possible in a state.

use super::normal::normalize;
use super::setup::{Clocks, Setup};
use super::state::{Kind, MOST_CLAIMS, State};
use super::step::Step;
use super::violation::Violation;
use lease_test_servers::search::{Model, Taken, fingerprint};

pub(crate) struct Protocol {
    setup: Setup,
    orders: Vec<[u8; MOST_CLAIMS]>,
}

impl Protocol {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self { setup: *setup, orders: setup.orders() }
    }
}

impl Model for Protocol {
    type State = State;
    type Step = Step;
    type Violation = Violation;

    fn first_state(&self) -> State {
        State::first(&self.setup)
    }

    fn take_all(&self, state: &State, taken: &mut Vec<Taken<Self>>) {
        taken.clear();
        let mut steps = Steps { setup: &self.setup, state: *state, taken };
        steps.lose_data();
        for key in 0..state.keys.len() {
            steps.expire(key);
        }
        for place in 0..self.setup.claims {
            steps.act(place);
            steps.deliver(place);
        }
    }

    fn fingerprint(&self, state: &State) -> u64 {
        match self.orders.as_slice() {
            [_] => fingerprint(state),
            orders => orders.iter().map(|it| fingerprint(&renamed(state, *it))).min().unwrap(),
        }
    }
}

/// The claim at `place` was at `order[place]` before.
fn renamed(state: &State, order: [u8; MOST_CLAIMS]) -> State {
    let mut names = [0; MOST_CLAIMS];
    for (new, old) in (0..).zip(order) {
        names[usize::from(old)] = new;
    }
    let mut renamed = *state;
    renamed.claims = order.map(|old| state.claims[usize::from(old)]);
    for key in &mut renamed.keys {
        for value in [&mut key.value, &mut key.lagging] {
            if value.kind != Kind::Absent {
                value.claim = names[usize::from(value.claim)];
            }
        }
    }
    renamed
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

    /// `change` returns the promise that the step breaks.
    pub(crate) fn then_checked(
        &mut self,
        step: Step,
        change: impl FnOnce(&mut State) -> Option<Violation>,
    ) {
        let mut state = self.state;
        let violation = change(&mut state);
        normalize(self.setup, &mut state);
        self.taken.push(Taken { step, state, violation });
    }

    pub(crate) fn has_right_clocks(&self) -> bool {
        self.setup.clocks == Clocks::Right
    }

    pub(crate) fn is_late(&self, sent: u8) -> bool {
        self.has_right_clocks() && sent == 0
    }
}
