//! The scripts of a node for claims, heartbeats and restores.

use crate::next::Steps;
use crate::setup::{Rule, Setup};
use crate::state::{EARLIER, Freed, HeartbeatState, LAST, Node, Phase, State, Vote, bit, name};
use crate::step::{Message, Step};
use crate::violation::Violation;

impl<const N: usize> Steps<'_, N> {
    /// In the model, all answers arrive. A lost answer only prevents grants, so it breaks no promise.
    pub(crate) fn deliver(&mut self, place: usize, node: usize) {
        let claim = self.state.claims[place];
        let link = self.state.nodes[node].links[place];
        if link.vote == Vote::Asked {
            self.deliver_claim(Message::Claim, place, node);
        }
        if link.duplicated {
            self.deliver_claim(Message::EarlierClaim, place, node);
        }
        if link.heartbeat == HeartbeatState::Sent {
            self.deliver_heartbeat(place, node);
        }
        // The restore may be sent at any time after the grant, so the state need not store the
        // send. If only the first nodes were asked, no heartbeat was sent, and so no restore.
        let only_first = claim.only_first || claim.released_first;
        let restores = !only_first || self.setup.leaves_out(Rule::ReleasedWhereRestored);
        if place < self.setup.lasting && self.state.restores > 0 && restores {
            for token in claim.granted_tokens() {
                self.deliver_restore(place, node, token);
            }
        }
        for round in [EARLIER, LAST] {
            if link.withdrawals & 1 << round != 0 {
                self.deliver_withdrawal(round, place, node);
            }
        }
        if link.freed == Freed::Releasing {
            self.deliver_release(place, node);
        }
    }

    fn accepts(&self, place: usize, node: usize, proposal: u8) -> bool {
        let (setup, there) = (self.setup, &self.state.nodes[node]);
        if there.awaited != 0 && !setup.leaves_out(Rule::RejoinDelay) {
            return false;
        }
        let larger = proposal > there.counter || setup.leaves_out(Rule::LargerThanTheCounter);
        if there.holder == name(place) {
            let larger = larger || setup.leaves_out(Rule::LargerThanTheCounterForTheHolder);
            return proposal > there.held && larger;
        }
        let free = if setup.adopts(place) { there.holder == name(0) } else { there.holder == 0 };
        free && larger
    }

    fn deliver_claim(&mut self, message: Message, place: usize, node: usize) {
        let earlier = matches!(message, Message::EarlierClaim);
        let claim = self.state.claims[place];
        let proposal = if earlier { claim.earlier } else { claim.token };
        let (setup, accepted) = (self.setup, self.accepts(place, node, proposal));
        let taken = accepted && self.state.nodes[node].holder != name(place);
        let violation = if taken { self.taken_after_release(place, node, proposal) } else { None };
        self.then_with_violation(violation, Step::Arrives(message, place, node), |state| {
            let there = &mut state.nodes[node];
            if accepted {
                let names =
                    !claim.earlier_granted || setup.leaves_out(Rule::NamesNoGrantedProposal);
                let split = !earlier && names && claim.earlier > 0;
                let ungranted = split.then_some(claim.earlier);
                accept(setup, there, place, proposal, ungranted);
            }
            let granted = there.holder == name(place) && there.held == proposal;
            let link = &mut there.links[place];
            if earlier {
                link.duplicated = false;
            } else if granted && claim.phase == Phase::Asking {
                link.vote = Vote::Granted;
            } else {
                link.vote = Vote::Nothing;
            }
        });
    }

    fn deliver_heartbeat(&mut self, place: usize, node: usize) {
        let (setup, token) = (self.setup, self.state.claims[place].beat_token());
        let there = &self.state.nodes[node];
        let any = setup.leaves_out(Rule::NotExtendedWithLargerToken);
        let holds = there.holder == name(place) && (there.held <= token || any);
        let violation = if holds { self.extended_too_late(place) } else { None };
        let arrives = Step::Arrives(Message::Heartbeat, place, node);
        self.then_with_violation(violation, arrives, |state| {
            state.nodes[node].links[place].heartbeat = HeartbeatState::Nothing;
            if holds {
                extend(setup, state, place, node);
            }
        });
    }

    fn deliver_restore(&mut self, place: usize, node: usize, token: u8) {
        let (setup, there) = (self.setup, self.state.nodes[node]);
        let followed = there.bound > token;
        let refused = (there.holder != 0 && !setup.leaves_out(Rule::NotRestoredOverAHolder))
            || (there.counting != 0 && !setup.leaves_out(Rule::RestoredAfterVotes))
            || (followed && !setup.leaves_out(Rule::NotRestoredAfterAnother));
        if refused {
            return;
        }
        let counts = setup.leaves_out(Rule::RestoreDoesNotCount)
            && self.state.count(place, |link| link.heartbeat != HeartbeatState::Nothing) > 0;
        let too_late = if counts { self.extended_too_late(place) } else { None };
        let violation = self.taken_after_release(place, node, token).or(too_late);
        let arrives = Step::Arrives(Message::Restore, place, node);
        self.then_with_violation(violation, arrives, |state| {
            let there = &mut state.nodes[node];
            (there.holder, there.held) = (name(place), token);
            there.former = there.bound;
            if setup.leaves_out(Rule::RestoreWritesNoCounter) {
                there.counter = if there.absent { token } else { there.counter.max(token) };
                (there.bound, there.former, there.absent) = (token, token, false);
            }
            state.restores -= 1;
            if counts {
                extend(setup, state, place, node);
            }
        });
    }

    fn extended_too_late(&self, place: usize) -> Option<Violation> {
        let extended =
            self.state.count(place, |link| link.heartbeat == HeartbeatState::Extended) + 1;
        let followed = self.state.claims[place].followed;
        (followed && extended >= self.setup.quorum).then_some(Violation::ExtendedAfterASuccessor)
    }

    fn taken_after_release(&self, place: usize, node: usize, token: u8) -> Option<Violation> {
        let (claim, link) = (self.state.claims[place], self.state.nodes[node].links[place]);
        if token > claim.release_token() {
            return None;
        }
        if claim.released_first && !link.first {
            return Some(Violation::TakenBesideItsRelease);
        }
        (link.freed == Freed::Released).then_some(Violation::TakenAfterItsRelease)
    }
}

/// A second vote for the same claim sets the former bound to the proposal, because the claim may have been
/// granted before. If the last vote was for a proposal from `ungranted` on, the former bound does not change.
fn accept<const N: usize>(
    setup: &Setup<N>,
    there: &mut Node,
    place: usize,
    proposal: u8,
    ungranted: Option<u8>,
) {
    if there.holder != name(place) {
        there.former = there.bound;
    } else if ungranted.is_none_or(|least| there.held < least)
        && !setup.leaves_out(Rule::SecondVoteLeavesTrace)
    {
        there.former = proposal;
    }
    (there.counter, there.bound, there.absent) = (proposal, proposal, false);
    (there.holder, there.held) = (name(place), proposal);
}

/// Once a majority has extended the lease, the lease is newer than earlier restarts. So nodes that restarted
/// before the heartbeat need not wait for its end.
fn extend<const N: usize>(setup: &Setup<N>, state: &mut State<N>, place: usize, node: usize) {
    let claim = state.claims[place];
    let there = &mut state.nodes[node];
    if !setup.leaves_out(Rule::HeartbeatRaisesToken) {
        there.held = claim.beat_token();
    }
    there.links[place].heartbeat = HeartbeatState::Extended;
    let extended = state.count(place, |link| link.heartbeat == HeartbeatState::Extended);
    if claim.renews && !claim.beat_earlier && extended >= setup.quorum {
        for node in &mut state.nodes {
            node.awaited &= !bit(place);
        }
    }
}
