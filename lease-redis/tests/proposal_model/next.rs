//! The steps that are possible in a state.

use crate::claim::{grant, may_be_granted};
use crate::setup::{Clocks, Rule, Setup};
use crate::state::{Freed, HeartbeatState, Node, Phase, RESERVED, State, bit};
use crate::step::{Step, Taken};
use crate::violation::Violation;

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
        // An early grant restricts the other claims most. So a claim that can do nothing else is granted as
        // early as possible.
        for place in 0..self.setup.claims {
            if self.setup.only_asks(place) && may_be_granted(self.setup, &state, place) {
                let broken = grant(self.setup, &mut state, place);
                violation = violation.or(broken);
            }
        }
        state.forget(self.setup);
        self.taken.push(Taken { step, state, violation });
    }

    fn expire(&mut self, node: usize) {
        if self.may_expire(node) {
            self.then(Step::Expires(node), |state| state.nodes[node].holder = 0);
        }
    }

    fn may_expire(&self, node: usize) -> bool {
        let there = &self.state.nodes[node];
        if there.holder == 0 || self.setup.clocks == Clocks::Wrong {
            return there.holder != 0;
        }
        if there.holder == RESERVED {
            let relies = |place: &usize| {
                let reserved = there.links[*place].freed == Freed::Reserved;
                reserved && self.state.claims[*place].phase == Phase::Reserving
            };
            return !(0..self.setup.claims).any(|place| relies(&place));
        }
        let place = usize::from(there.holder) - 1;
        let (claim, link) = (self.state.claims[place], there.links[place]);
        if !matches!(claim.phase, Phase::Asking | Phase::Granted) {
            return true;
        }
        if claim.phase == Phase::Granted && !claim.beat_earlier && self.extended(place) > 0 {
            // When the heartbeat has reached a majority, the holder relies on the nodes where it arrived.
            let here = link.heartbeat == HeartbeatState::Extended;
            return !here && (self.is_extended(place) || there.held != claim.token);
        }
        // A vote for an earlier proposal may already have expired.
        there.held != claim.token
    }

    fn restart(&mut self, node: usize) {
        if self.state.restarts == 0 {
            return;
        }
        let forgets = self.setup.leaves_out(Rule::TimeAfterRestart);
        let (mut awaited, mut counting) = (0, 0);
        if self.setup.clocks == Clocks::Right {
            for (place, claim) in self.state.claims.iter().enumerate() {
                awaited |= if claim.is_live() { bit(place) } else { 0 };
                counting |= if claim.phase == Phase::Asking { bit(place) } else { 0 };
            }
        }
        self.then(Step::Restarts(node), |state| {
            let there = &mut state.nodes[node];
            let counter = if forgets { 0 } else { there.counter };
            *there = Node {
                counter,
                absent: true,
                awaited,
                counting,
                links: there.links,
                ..Node::default()
            };
            for link in &mut there.links {
                if link.freed == Freed::Released {
                    link.freed = Freed::Nothing;
                }
            }
            state.restarts -= 1;
        });
    }

    pub(crate) fn is_extended(&self, place: usize) -> bool {
        self.extended(place) >= self.setup.quorum
    }

    fn extended(&self, place: usize) -> usize {
        self.state.count(place, |link| link.heartbeat == HeartbeatState::Extended)
    }
}
