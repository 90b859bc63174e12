//! The steps that are possible in a state.

use lease_test_servers::search::{Model, Taken, fingerprint};

use crate::normal::normalize;
use crate::progress::is_stuck;
use crate::setup::{Clocks, Setup};
use crate::state::{Kind, MOST_CLIENTS, State};
use crate::step::Step;
use crate::violation::Violation;

#[derive(Debug)]
pub(crate) struct Protocol {
    setup: Setup,
    orders: Vec<[u8; MOST_CLIENTS]>,
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
        if is_stuck(&self.setup, state) {
            let violation = Some(Violation::Stuck);
            taken.push(Taken { step: Step::Continues, state: *state, violation });
        }
        let mut steps = Steps { setup: &self.setup, state: *state, taken };
        steps.lose_data();
        steps.expire();
        for place in 0..self.setup.clients {
            steps.time_out(place);
            steps.kill(place);
            steps.cut(place);
            steps.act(place);
            steps.deliver(place);
        }
    }

    /// Clients with the same role are interchangeable.
    fn fingerprint(&self, state: &State) -> u64 {
        match self.orders.as_slice() {
            [_] => fingerprint(state),
            orders => orders.iter().map(|it| fingerprint(&renamed(state, *it))).min().unwrap(),
        }
    }
}

/// The client at `place` was at `order[place]` before.
fn renamed(state: &State, order: [u8; MOST_CLIENTS]) -> State {
    let mut names = [0; MOST_CLIENTS];
    for (new, old) in (0..).zip(order) {
        names[usize::from(old)] = new;
    }
    let mut renamed = *state;
    renamed.clients = order.map(|old| state.clients[usize::from(old)]);
    for data in renamed.all_data_mut() {
        if data.lock.kind != Kind::Absent {
            data.lock.client = names[usize::from(data.lock.client)];
        }
        for place in data.queue.places_mut() {
            place.client = names[usize::from(place.client)];
        }
    }
    renamed
}

#[derive(Debug)]
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
