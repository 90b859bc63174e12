//! The steps that are possible in a state, and the promises that they may break.

use std::fmt;

use super::setup::{Rule, Setup};
use super::state::{Kind, NOBODY, Phase, Request, State, name};
use lease_test_servers::search::{Model, Taken, fingerprint};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// The key is free or newly reserved, and a waiter sleeps although no message is on its way.
    LostWakeUp,
    KeyWithoutTtl,
}

#[derive(Debug)]
pub(crate) struct Step(pub(crate) Option<usize>, pub(crate) &'static str);

impl Model for Setup {
    type State = State;
    type Step = Step;
    type Violation = Violation;

    fn first_state(&self) -> State {
        let (rewrites, cuts, losses) = (self.rewrites, self.cuts, self.losses);
        State { rewrites, cuts, losses, ..State::default() }
    }

    fn take_all(&self, state: &State, taken: &mut Vec<Taken<Self>>) {
        taken.clear();
        let mut steps = Steps { setup: self, state: *state, taken };
        steps.lose_value();
        for place in 0..self.processes {
            steps.act(place);
            steps.deliver(place);
        }
    }

    /// Processes are interchangeable.
    fn fingerprint(&self, state: &State) -> u64 {
        let orders: &[[usize; 3]] = match self.processes {
            2 => &[[0, 1, 2], [1, 0, 2]],
            _ => &[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
        };
        let renamed = |order: &[usize; 3]| {
            let mut renamed = *state;
            renamed.processes = order.map(|old| state.processes[old]);
            if let Some(new) = order.iter().position(|old| *old == usize::from(state.value.holder))
                && state.value.kind != Kind::Absent
            {
                renamed.value.holder = u8::try_from(new).unwrap();
            }
            fingerprint(&renamed)
        };
        orders.iter().map(renamed).min().unwrap()
    }
}

pub(crate) struct Steps<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) state: State,
    taken: &'a mut Vec<Taken<Setup>>,
}

impl Steps<'_> {
    pub(crate) fn then(&mut self, step: Step, change: impl FnOnce(&mut State)) {
        let mut state = self.state;
        change(&mut state);
        normalize(self.setup, &mut state);
        let violation = violation(&state);
        self.taken.push(Taken { step, state, violation });
    }
}

fn violation(state: &State) -> Option<Violation> {
    let value = state.value;
    if value.kind == Kind::Held && value.holder == NOBODY {
        return Some(Violation::KeyWithoutTtl);
    }
    let is_free = matches!(value.kind, Kind::Absent | Kind::Reserved);
    let lost = state
        .processes
        .iter()
        .any(|process| process.sleeps() && process.unseen && !process.message && !process.timed);
    (is_free && lost).then_some(Violation::LostWakeUp)
}

/// Clears values without effect, so that fewer states differ.
fn normalize(setup: &Setup, state: &mut State) {
    if state.value.kind == Kind::Absent {
        (state.value.holder, state.value.mark) = (0, false);
    }
    for (place, process) in state.processes.iter_mut().enumerate() {
        for (slot, request) in (1..).zip(&mut process.requests) {
            let answered = matches!(request, Request::Granted | Request::Held);
            if answered && process.current != slot {
                *request = Request::Nothing;
            }
        }
        if process.phase != Phase::Waiting {
            (process.unseen, process.timed) = (false, false);
        }
        if matches!(process.phase, Phase::Holding | Phase::Over) {
            process.asked = 0;
        }
        if setup.leaves_out(Rule::TimeLeft) {
            process.timed = false;
        }
        let occupies = state.value.kind != Kind::Absent && usize::from(state.value.holder) == place;
        let pending = process.requests.iter().any(|request| *request != Request::Nothing);
        if process.phase == Phase::Over && !occupies && !pending {
            process.release = super::state::Release::Nothing;
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(place) => write!(f, "{}{}", name(place), self.1),
            None => f.write_str(self.1),
        }
    }
}
