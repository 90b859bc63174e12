//! How a node handles the requests that arrive: the scripts.

use std::ops::RangeInclusive;

use crate::claim::written_back;
use crate::next::Steps;
use crate::setup::{Rule, Setup};
use crate::state::{
    BEYOND, Claim, EARLIER, Freed, HeartbeatState, LAST, Node, Phase, State, Vote, bit, name,
};
use crate::step::{Message, Step};
use crate::violation::Violation;

impl<const N: usize> Steps<'_, N> {
    /// Each request of the claim at `place` that is under way to `node` may arrive now.
    ///
    /// All answers arrive. A lost answer only prevents grants, so it can break no further promise. The
    /// search also counts votes without that answer.
    pub(crate) fn deliver(&mut self, place: usize, node: usize) {
        let claim = self.state.claims[place];
        let link = self.state.nodes[node].links[place];
        match link.vote {
            Vote::Asked => self.deliver_claim(Message::Claim, place, node),
            Vote::Raising => self.deliver_write_back(place, node),
            Vote::Nothing | Vote::Counted(_) | Vote::Confirmed => (),
        }
        if link.duplicated {
            self.deliver_claim(Message::EarlierClaim, place, node);
        }
        if link.stale != 0 {
            let arrives = Step::Arrives(Message::EarlierWriteBack, place, node);
            self.then(arrives, |state| {
                write_back(state, place, node, link.stale);
                state.nodes[node].links[place].stale = 0;
            });
        }
        if link.heartbeat == HeartbeatState::Sent {
            self.deliver_heartbeat(place, node);
        }
        // The request may be sent at any time since the grant, so the state need not store that time.
        if place < self.setup.lasting && claim.was_granted() && self.state.restores > 0 {
            self.deliver_restore(place, node);
        }
        if link.withdrawals & 1 << EARLIER != 0 {
            self.deliver_withdrawal(Message::EarlierWithdrawal, place, node);
        }
        if link.withdrawals & 1 << LAST != 0 {
            self.deliver_withdrawal(Message::Withdrawal, place, node);
        }
        if link.freed == Freed::Releasing {
            self.deliver_release(place, node);
        }
    }

    fn deliver_claim(&mut self, message: Message, place: usize, node: usize) {
        for time in self.times(place, node) {
            self.deliver_claim_at(message, place, node, time);
        }
    }

    /// The times from which a node may count: its own or a proposed one. Only a node that has lost its
    /// counter uses them. The other nodes begin with arbitrary counters, as if from such a time.
    fn times(&self, place: usize, node: usize) -> RangeInclusive<u8> {
        let there = self.state.nodes[node];
        let time = self.state.largest_counted() + 1;
        if there.started == 0
            || self.refuses(place, node)
            || self.setup.leaves_out(Rule::TimeAfterRestart)
        {
            0..=0
        } else if self.setup.leaves_out(Rule::ProposedSinceTheStart) {
            1..=time
        } else {
            there.started..=time
        }
    }

    fn refuses(&self, place: usize, node: usize) -> bool {
        let (there, name) = (self.state.nodes[node], name(place));
        let waits = there.awaited != 0 && !self.setup.leaves_out(Rule::RejoinDelay);
        there.holder != 0 || there.granted == name || there.last == name || waits
    }

    fn deliver_claim_at(&mut self, message: Message, place: usize, node: usize, time: u8) {
        let (setup, name) = (self.setup, name(place));
        let refused = self.refuses(place, node);
        let again = self.state.nodes[node].holder == name;
        let violation = if again || refused { None } else { self.taken_after_release(place, node) };
        self.then_with_violation(violation, Step::Arrives(message, place, node), |state| {
            let there = &mut state.nodes[node];
            let link = &mut there.links[place];
            let round = if matches!(message, Message::EarlierClaim) {
                link.duplicated = false;
                EARLIER
            } else {
                link.vote = Vote::Nothing;
                state.claims[place].round()
            };
            if !again && refused {
                return;
            }
            if !again {
                there.counter = (there.counter + 1).max(time);
                there.started = 0;
                if there.before == 0 || !setup.leaves_out(Rule::BeforeTheLastVote) {
                    (there.before, there.before_under) = (there.granted, there.under);
                }
                (there.holder, there.granted, there.held) = (name, name, there.counter);
                there.under = there.counter;
                there.round = round;
            }
            there.round = there.round.max(round);
            let claim = &state.claims[place];
            if matches!(message, Message::Claim) {
                there.links[place].vote = match claim.phase {
                    Phase::Asking => Vote::Counted(there.held),
                    Phase::WritingBack => written_back(setup, there.held, claim.token),
                    Phase::Granted | Phase::Over if there.held < claim.token => Vote::Raising,
                    _ => Vote::Nothing,
                };
            }
        });
    }

    fn deliver_write_back(&mut self, place: usize, node: usize) {
        let claim = self.state.claims[place];
        let unguarded = self.setup.leaves_out(Rule::GuardOfWriteBack);
        self.then(Step::Arrives(Message::WriteBack, place, node), |state| {
            let written = write_back(state, place, node, claim.token);
            let there = &mut state.nodes[node];
            if unguarded {
                there.counter = there.counter.max(claim.token);
            }
            let stands = claim.phase == Phase::WritingBack && (written || unguarded);
            there.links[place].vote = if stands { Vote::Confirmed } else { Vote::Nothing };
        });
    }

    fn deliver_heartbeat(&mut self, place: usize, node: usize) {
        let setup = self.setup;
        let holds = self.state.nodes[node].holder == name(place);
        let violation = if holds { self.extended_too_late(place) } else { None };
        self.then_with_violation(
            violation,
            Step::Arrives(Message::Heartbeat, place, node),
            |state| {
                state.nodes[node].links[place].heartbeat = HeartbeatState::Nothing;
                if holds {
                    extend(setup, state, place, node);
                }
            },
        );
    }

    fn deliver_restore(&mut self, place: usize, node: usize) {
        let setup = self.setup;
        let (claim, there) = (self.state.claims[place], self.state.nodes[node]);
        let followed = there.is_followed(place, claim);
        let released = there.last == name(place);
        let refused = (there.holder != 0 && !self.setup.leaves_out(Rule::NotRestoredOverAHolder))
            || (there.counting != 0 && !self.setup.leaves_out(Rule::RestoredAfterVotes))
            || (followed && !self.setup.leaves_out(Rule::NotRestoredAfterAnother))
            || (released && !self.setup.leaves_out(Rule::NotRestoredAfterRelease));
        if refused {
            return;
        }
        let counts = self.setup.leaves_out(Rule::RestoreDoesNotCount)
            && self
                .state
                .nodes
                .iter()
                .any(|node| node.links[place].heartbeat != HeartbeatState::Nothing);
        let too_late = if counts { self.extended_too_late(place) } else { None };
        let violation = self.taken_after_release(place, node).or(too_late);
        self.then_with_violation(
            violation,
            Step::Arrives(Message::Restore, place, node),
            |state| {
                let there = &mut state.nodes[node];
                (there.holder, there.granted, there.held) = (name(place), name(place), claim.token);
                (there.under, there.round) = (claim.token, BEYOND);
                there.counter = there.counter.max(claim.token);
                state.restores -= 1;
                if counts {
                    extend(setup, state, place, node);
                }
            },
        );
    }

    fn deliver_withdrawal(&mut self, message: Message, place: usize, node: usize) {
        let round = if matches!(message, Message::Withdrawal) { LAST } else { EARLIER };
        let any = self.setup.leaves_out(Rule::WithdrawalOfItsRound);
        self.then(Step::Arrives(message, place, node), |state| {
            let there = &mut state.nodes[node];
            if there.holder == name(place) && (any || there.round <= round) {
                (there.holder, there.granted, there.before) = (0, there.before, 0);
                (there.under, there.before_under) = (there.before_under, 0);
            }
            there.links[place].withdrawals &= !(1 << round);
        });
    }

    fn deliver_release(&mut self, place: usize, node: usize) {
        let claim = self.state.claims[place];
        self.then(Step::Arrives(Message::Release, place, node), |state| {
            let there = &mut state.nodes[node];
            let nobody_came = there.holder == 0 && !there.is_followed(place, claim);
            if there.holder == name(place) || nobody_came {
                if there.holder == name(place) || there.granted == name(place) {
                    there.under = claim.token;
                }
                (there.holder, there.last) = (0, name(place));
                there.links[place].freed = Freed::Released;
            } else if there.holder != 0 && there.before == name(place) {
                (there.last, there.before_under) = (name(place), claim.token);
                there.links[place].freed = Freed::Released;
            } else {
                there.links[place].freed = Freed::Nothing;
            }
        });
    }

    /// Returns the violation if an extension on one more node breaks a promise.
    fn extended_too_late(&self, place: usize) -> Option<Violation> {
        let extended =
            self.state.count(place, |link| link.heartbeat == HeartbeatState::Extended) + 1;
        let followed = self.state.claims[place].followed;
        (followed && extended >= self.setup.quorum).then_some(Violation::ExtendedAfterASuccessor)
    }

    /// Returns the violation if the grant occupies the key although the node remembers its release. A
    /// later release may have replaced the remembered one.
    fn taken_after_release(&self, place: usize, node: usize) -> Option<Violation> {
        let there = &self.state.nodes[node];
        let remembered = there.links[place].freed == Freed::Released && there.last == name(place);
        remembered.then_some(Violation::TakenAfterItsRelease)
    }
}

impl Node {
    /// Whether the node has counted another grant after that of `claim`.
    fn is_followed(&self, place: usize, claim: Claim) -> bool {
        self.under > claim.token && self.granted != 0 && self.granted != name(place)
    }
}

/// Writes the token back. Returns whether the node has the token and the key afterwards.
fn write_back<const N: usize>(state: &mut State<N>, place: usize, node: usize, token: u8) -> bool {
    let there = &mut state.nodes[node];
    if there.holder != name(place) {
        return false;
    }
    there.under = token;
    if there.held > token {
        return false;
    }
    there.held = token;
    there.counter = there.counter.max(token);
    true
}

/// Extends a lease on a node. Once a majority has extended the lease, nodes that restarted before the
/// heartbeat need not wait for its end: the extended lease is newer than their restarts.
fn extend<const N: usize>(setup: &Setup<N>, state: &mut State<N>, place: usize, node: usize) {
    let claim = state.claims[place];
    let there = &mut state.nodes[node];
    there.counter = there.counter.max(claim.token);
    there.under = claim.token;
    there.links[place].heartbeat = HeartbeatState::Extended;
    if !setup.leaves_out(Rule::ExtendedIsNotWithdrawn) {
        there.round = BEYOND;
    }
    let extended = state.count(place, |link| link.heartbeat == HeartbeatState::Extended);
    if claim.renews && extended >= setup.quorum {
        for node in &mut state.nodes {
            node.awaited &= !bit(place);
        }
    }
}
