//! The actions of a claim.

use crate::next::Steps;
use crate::setup::{Clocks, Rule, Setup};
use crate::state::{EARLIER, Freed, HeartbeatState, LAST, Phase, State, Vote, bit};
use crate::step::{Action, Step};
use crate::violation::Violation;

impl<const N: usize> Steps<'_, N> {
    pub(crate) fn act(&mut self, place: usize) {
        let (setup, claim) = (self.setup, self.state.claims[place]);
        let asks = claim.phase == Phase::Asking;
        let does = |action| Step::Claim(place, action);
        match claim.phase {
            Phase::Idle if setup.adopts(place) && self.state.claims[0].phase != Phase::Over => (),
            Phase::Idle => {
                for proposal in 1..=setup.largest {
                    for first in self.first_nodes(place) {
                        self.ask(place, proposal, first);
                    }
                }
            }
            Phase::Asking if may_be_granted(setup, &self.state, place) => {
                let mut granted = self.state;
                let violation = grant(setup, &mut granted, place);
                self.then_with_violation(violation, does(Action::IsGranted), |state| {
                    *state = granted;
                });
            }
            Phase::Granted if place < setup.lasting => self.use_lease(place),
            _ => (),
        }
        if asks && claim.only_first {
            self.ask_others(place);
        }
        if asks && place < setup.withdrawing {
            self.then(does(Action::Withdraws), |state| {
                state.claims[place].phase = Phase::Abandoned;
                for node in &mut state.nodes {
                    node.links[place].withdrawals |= 1 << LAST;
                }
            });
        }
        let unused = asks || claim.phase == Phase::Abandoned;
        if claim.may_repeat && (unused || setup.repeats_grants && claim.was_granted()) {
            let least = claim.token + u8::from(!setup.leaves_out(Rule::LargerProposal));
            let everywhere = !setup.leaves_out(Rule::RepeatedEverywhere);
            for proposal in least..=setup.largest {
                for first in if everywhere { vec![[true; N]] } else { self.first_nodes(place) } {
                    self.repeat(place, proposal, first);
                }
            }
        }
        if claim.is_live() && setup.clocks == Clocks::Right {
            self.then(does(Action::Ends), |state| {
                state.claims[place].phase = if asks { Phase::Abandoned } else { Phase::Over };
            });
        }
    }

    /// The sets of nodes that the claim may ask first. Other clients may choose other nodes.
    fn first_nodes(&self, place: usize) -> Vec<[bool; N]> {
        if !self.setup.majority_first || place >= self.setup.lasting {
            return vec![[true; N]];
        }
        let sets = (0..1_u32 << N).map(|set| std::array::from_fn(|node| set & 1 << node != 0));
        let size = |set: &[bool; N]| set.iter().filter(|asked| **asked).count();
        sets.filter(|set| size(set) == self.setup.quorum).collect()
    }

    fn ask(&mut self, place: usize, proposal: u8, first: [bool; N]) {
        let floor = self.state.largest_granted();
        self.then(Step::Claim(place, Action::Asks(proposal)), |state| {
            let claim = &mut state.claims[place];
            (claim.phase, claim.token, claim.floor) = (Phase::Asking, proposal, floor);
            claim.only_first = first.contains(&false);
            for (node, asked) in state.nodes.iter_mut().zip(first) {
                let link = &mut node.links[place];
                (link.first, link.vote) = (asked, if asked { Vote::Asked } else { Vote::Nothing });
            }
        });
    }

    fn ask_others(&mut self, place: usize) {
        let knows = !self.setup.leaves_out(Rule::ReleasedWhereAsked);
        self.then(Step::Claim(place, Action::AsksOthers), |state| {
            state.claims[place].only_first &= !knows;
            for node in &mut state.nodes {
                let link = &mut node.links[place];
                if !link.first {
                    link.vote = Vote::Asked;
                }
            }
        });
    }

    /// The claim counts its votes anew, and does not use its former grant any more.
    fn repeat(&mut self, place: usize, proposal: u8, first: [bool; N]) {
        let keeps_votes = self.setup.leaves_out(Rule::VotesForOneProposal);
        let floor = self.state.largest_granted();
        self.then(Step::Claim(place, Action::Repeats(proposal)), |state| {
            let claim = &mut state.claims[place];
            (claim.earlier, claim.earlier_granted) = (claim.token, claim.was_granted());
            (claim.beat_earlier, claim.release_earlier) = (true, true);
            claim.only_first = first.contains(&false);
            for (node, asked) in state.nodes.iter_mut().zip(first) {
                let link = &mut node.links[place];
                link.duplicated = link.vote == Vote::Asked;
                if link.withdrawals & 1 << LAST != 0 {
                    link.withdrawals = 1 << EARLIER;
                }
                if link.freed == Freed::Reserved {
                    link.freed = Freed::Nothing;
                }
                link.first = asked;
                if !asked {
                    link.vote = Vote::Nothing;
                } else if !(keeps_votes && link.vote == Vote::Granted) {
                    link.vote = Vote::Asked;
                }
                // The claim now counts only new votes, and its lease begins.
                node.counting &= !bit(place);
                node.awaited &= !bit(place);
            }
            (claim.phase, claim.token, claim.may_repeat) = (Phase::Asking, proposal, false);
            claim.floor = floor;
        });
    }

    fn use_lease(&mut self, place: usize) {
        let (setup, claim) = (self.setup, self.state.claims[place]);
        if claim.may_send_heartbeat || claim.may_send_again && !self.is_extended(place) {
            self.send_heartbeats(place);
        }
        if claim.may_release {
            self.then(Step::Claim(place, Action::Releases), |state| {
                let claim = &mut state.claims[place];
                claim.phase = if setup.reserves { Phase::Reserving } else { Phase::Over };
                (claim.may_release, claim.release_earlier) = (false, false);
                claim.released_first = std::mem::take(&mut claim.only_first);
                let only_first = claim.released_first;
                for node in &mut state.nodes {
                    let link = &mut node.links[place];
                    if link.first || !only_first {
                        link.freed = Freed::Releasing;
                    }
                }
            });
        }
        if setup.adopting > 0 && place == 0 {
            self.then(Step::Claim(place, Action::HandsOver), |state| {
                state.claims[place].phase = Phase::Over;
            });
        }
    }

    fn send_heartbeats(&mut self, place: usize) {
        let followed = self.state.largest_granted() > self.state.claims[place].token;
        let renews = self.state.nodes.iter().any(|node| node.awaited & bit(place) != 0);
        let again = !self.state.claims[place].may_send_heartbeat;
        let keeps = again && self.setup.leaves_out(Rule::SpreadCountsAnew);
        let knows = !self.setup.leaves_out(Rule::ReleasedWhereRestored);
        self.then(Step::Claim(place, Action::SendsHeartbeats), |state| {
            let claim = &mut state.claims[place];
            (claim.may_send_heartbeat, claim.followed, claim.renews) = (false, followed, renews);
            claim.may_send_again &= !again;
            claim.only_first &= !knows;
            claim.beat_earlier = false;
            for node in &mut state.nodes {
                let link = &mut node.links[place];
                if !(keeps && link.heartbeat == HeartbeatState::Extended) {
                    link.heartbeat = HeartbeatState::Sent;
                }
            }
        });
    }
}

pub(crate) fn may_be_granted<const N: usize>(
    setup: &Setup<N>,
    state: &State<N>,
    place: usize,
) -> bool {
    let votes = state.count(place, |link| link.vote == Vote::Granted);
    state.claims[place].phase == Phase::Asking && votes >= setup.quorum
}

pub(crate) fn grant<const N: usize>(
    setup: &Setup<N>,
    state: &mut State<N>,
    place: usize,
) -> Option<Violation> {
    let claim = state.claims[place];
    let held = |other| other != place && is_held(setup, state, other);
    let mut violation = None;
    if state.claims.iter().flat_map(|other| other.granted_tokens()).any(|it| it == claim.token) {
        violation = Some(Violation::OneTokenTwice);
    } else if claim.token <= claim.floor {
        violation = Some(Violation::TokensOutOfOrder);
    } else if setup.clocks == Clocks::Right && (0..setup.claims).any(held) {
        violation = Some(Violation::HeldByTwo);
    }
    state.claims[place].phase = Phase::Granted;
    state.claims[place].may_repeat &= setup.repeats_grants;
    violation
}

/// A holder relies on its lease, or a majority reserved the key.
pub(crate) fn is_held<const N: usize>(setup: &Setup<N>, state: &State<N>, place: usize) -> bool {
    match state.claims[place].phase {
        Phase::Granted => true,
        Phase::Reserving => {
            state.count(place, |link| link.freed == Freed::Reserved) >= setup.quorum
        }
        _ => false,
    }
}
