//! The steps that are possible in a state.

use crate::claim::{grant, may_be_granted};
use crate::setup::{Clocks, Setup};
use crate::state::{HeartbeatState, Node, Phase, State, bit};
use crate::step::{Step, Taken};
use crate::violation::Violation;

/// Fills `taken` with all possible steps.
pub(crate) fn take_all<const N: usize>(
    setup: &Setup<N>,
    state: State<N>,
    taken: &mut Vec<Taken<N>>,
) {
    taken.clear();
    let mut steps = Steps { setup, state, taken };
    for node in 0..N {
        steps.expire(node);
        steps.restart(node);
    }
    for place in 0..setup.claims {
        steps.act(place);
        for node in 0..N {
            steps.deliver(place, node);
        }
    }
}

pub(crate) struct Steps<'a, const N: usize> {
    pub(crate) setup: &'a Setup<N>,
    pub(crate) state: State<N>,
    taken: &'a mut Vec<Taken<N>>,
}

impl<const N: usize> Steps<'_, N> {
    pub(crate) fn then(&mut self, step: Step, change: impl FnOnce(&mut State<N>)) {
        self.then_with_violation(None, step, change);
    }

    pub(crate) fn then_with_violation(
        &mut self,
        mut violation: Option<Violation>,
        step: Step,
        change: impl FnOnce(&mut State<N>),
    ) {
        let mut state = self.state;
        change(&mut state);
        // A claim that neither lasts nor may withdraw is granted here, as early as possible: an
        // early grant restricts the other claims most. The grant of any other claim is a step of
        // its own.
        for place in self.setup.lasting.max(self.setup.withdrawing)..self.setup.claims {
            if may_be_granted(self.setup, &state, place) {
                let broken = grant(self.setup, &mut state, place);
                violation = violation.or(broken);
            }
        }
        state.forget(self.setup);
        self.taken.push(Taken { step, state, violation });
    }

    fn expire(&mut self, node: usize) {
        let there = &self.state.nodes[node];
        let Some(place) = usize::from(there.holder).checked_sub(1) else { return };
        let may_expire = match self.setup.clocks {
            Clocks::Wrong => true,
            // A heartbeat that reached a majority prolongs the lease where it arrived.
            Clocks::Right => {
                !self.state.claims[place].is_live()
                    || self.is_extended(place)
                        && there.links[place].heartbeat != HeartbeatState::Extended
            }
        };
        if may_expire {
            self.then(Step::Expires(node), |state| state.nodes[node].holder = 0);
        }
    }

    fn restart(&mut self, node: usize) {
        if self.state.restarts == 0 {
            return;
        }
        let time = self.state.largest_counted();
        let (mut awaited, mut counting) = (0, 0);
        if self.setup.clocks == Clocks::Right {
            for (place, claim) in self.state.claims.iter().enumerate() {
                awaited |= if claim.is_live() { bit(place) } else { 0 };
                counting |= if claim.phase == Phase::Asking { bit(place) } else { 0 };
            }
        }
        self.then(Step::Restarts(node), |state| {
            let links = state.nodes[node].links;
            state.nodes[node] =
                Node { started: time + 1, awaited, counting, links, ..Node::default() };
            state.restarts -= 1;
            state.time = time;
        });
    }

    fn is_extended(&self, place: usize) -> bool {
        self.state.count(place, |link| link.heartbeat == HeartbeatState::Extended)
            >= self.setup.quorum
    }
}
