//! The scripts of a node that handle withdrawals and releases.

use crate::claim::is_held;
use crate::next::Steps;
use crate::setup::{Clocks, Rule};
use crate::state::{EARLIER, Freed, Phase, RESERVED, State, name};
use crate::step::{Message, Step};
use crate::violation::Violation;

impl<const N: usize> Steps<'_, N> {
    pub(crate) fn deliver_withdrawal(&mut self, round: u8, place: usize, node: usize) {
        let claim = self.state.claims[place];
        let (message, proposal) = if round == EARLIER {
            (Message::EarlierWithdrawal, claim.earlier)
        } else {
            (Message::Withdrawal, claim.token)
        };
        let setup = self.setup;
        let any = setup.leaves_out(Rule::WithdrawalOfItsProposal);
        self.then(Step::Arrives(message, place, node), |state| {
            let there = &mut state.nodes[node];
            if there.holder == name(place) && (any || there.held <= proposal) {
                there.holder = 0;
                // The nonce may have been granted with a smaller token.
                let exact = there.held == proposal || setup.leaves_out(Rule::TraceOfSmallerToken);
                if exact && !setup.leaves_out(Rule::WithdrawnVoteLeavesNoTrace) {
                    there.bound = there.former;
                }
            }
            there.links[place].withdrawals &= !(1 << round);
        });
    }

    pub(crate) fn deliver_release(&mut self, place: usize, node: usize) {
        let (setup, token) = (self.setup, self.state.claims[place].release_token());
        let there = self.state.nodes[node];
        let any = setup.leaves_out(Rule::ReleaseOfItsToken);
        let holds = there.holder == name(place) && (any || there.held <= token);
        let followed = there.bound > token && !setup.leaves_out(Rule::NotReservedAfterAnother);
        let awaited = there.awaited != 0 && !setup.leaves_out(Rule::ReservedAfterRejoinDelay);
        let reserves = self.state.claims[place].phase == Phase::Reserving
            && !awaited
            && (holds || there.holder == 0 && !followed);
        let mut after = self.state;
        let node_after = &mut after.nodes[node];
        if holds {
            node_after.holder = 0;
        }
        if !setup.leaves_out(Rule::ReleaseRaisesCounter) {
            if there.absent && setup.leaves_out(Rule::ReleaseKeepsTime) {
                node_after.counter = 0;
            }
            node_after.counter = node_after.counter.max(token + 1);
            node_after.bound = node_after.bound.max(token + 1);
            if !setup.leaves_out(Rule::ReleaseRaisesTheFormerBound) {
                node_after.former = node_after.former.max(token + 1);
            }
            node_after.absent = false;
        }
        node_after.links[place].freed = Freed::Released;
        if reserves {
            node_after.holder = RESERVED;
            node_after.links[place].freed = Freed::Reserved;
        }
        let violation = if reserves { self.reserved_too_late(place, &after) } else { None };
        let arrives = Step::Arrives(Message::Release, place, node);
        self.then_with_violation(violation, arrives, |state| *state = after);
    }

    fn reserved_too_late(&self, place: usize, after: &State<N>) -> Option<Violation> {
        if self.setup.clocks == Clocks::Wrong || !is_held(self.setup, after, place) {
            return None;
        }
        let other = |other| other != place && is_held(self.setup, after, other);
        if (0..self.setup.claims).any(other) {
            return Some(Violation::HeldByTwo);
        }
        let followed = after.largest_granted() > after.claims[place].release_token();
        followed.then_some(Violation::ReservedAfterASuccessor)
    }
}
