//! The actions of a claim: it asks, counts votes, is granted, and ends.

use std::cmp::Ordering;

use crate::next::Steps;
use crate::setup::{Clocks, Rule, Setup};
use crate::state::{Freed, HeartbeatState, Phase, State, Vote, bit};
use crate::step::{Action, Step};
use crate::violation::Violation;

impl<const N: usize> Steps<'_, N> {
    pub(crate) fn act(&mut self, place: usize) {
        let claim = self.state.claims[place];
        let (asks, lasting) = (claim.is_asking(), place < self.setup.lasting);
        let does = |action| Step::Claim(place, action);
        match claim.phase {
            Phase::Idle => {
                let floor = self.state.largest_granted();
                self.then(does(Action::Asks), |state| {
                    (state.claims[place].phase, state.claims[place].floor) = (Phase::Asking, floor);
                    for node in &mut state.nodes {
                        node.links[place].vote = Vote::Asked;
                    }
                });
            }
            Phase::Asking => self.count_votes(place),
            Phase::WritingBack if may_be_granted(self.setup, &self.state, place) => {
                let mut granted = self.state;
                let violation = grant(self.setup, &mut granted, place);
                self.then_with_violation(violation, does(Action::IsGranted), |state| {
                    *state = granted;
                });
            }
            Phase::Granted if lasting => {
                if claim.may_send_heartbeat {
                    self.send_heartbeats(place);
                }
                self.then(does(Action::Releases), |state| {
                    state.claims[place].phase = Phase::Over;
                    for node in &mut state.nodes {
                        node.links[place].freed = Freed::Releasing;
                    }
                });
            }
            _ => (),
        }
        if asks && place < self.setup.withdrawing {
            self.then(does(Action::Withdraws), |state| {
                state.claims[place].phase = Phase::Abandoned;
                for node in &mut state.nodes {
                    node.links[place].withdrawals |= 1 << claim.round();
                }
            });
        }
        if claim.may_repeat && (asks || claim.phase == Phase::Abandoned) {
            self.repeat(place);
        }
        if claim.is_live() && self.setup.clocks == Clocks::Right {
            self.then(does(Action::Ends), |state| {
                let claim = &mut state.claims[place];
                claim.phase = if asks { Phase::Abandoned } else { Phase::Over };
                claim.may_repeat = false;
            });
        }
    }

    /// Repeats the claim with the same nonce, in a later round or after a lost answer. The votes are
    /// counted anew.
    fn repeat(&mut self, place: usize) {
        self.then(Step::Claim(place, Action::Repeats), |state| {
            let claim = &mut state.claims[place];
            for node in &mut state.nodes {
                let link = &mut node.links[place];
                link.duplicated |= link.vote == Vote::Asked;
                if link.vote == Vote::Raising {
                    link.stale = claim.token;
                }
                link.vote = Vote::Asked;
                // From now on, only votes that are requested now count.
                node.counting &= !bit(place);
            }
            (claim.phase, claim.token, claim.may_repeat) = (Phase::Asking, 0, false);
        });
    }

    /// The largest counter becomes the token. The claim writes it back to nodes with smaller counters.
    ///
    /// Any majority suffices, so the search tries each counter that is the largest of some majority. Larger
    /// votes are treated as late.
    fn count_votes(&mut self, place: usize) {
        let votes = self.state.nodes.map(|node| match node.links[place].vote {
            Vote::Counted(counted) => counted,
            _ => 0,
        });
        for (node, token) in votes.into_iter().enumerate() {
            let up_to_it = votes.iter().filter(|vote| (1..=token).contains(*vote)).count();
            if token == 0 || up_to_it < self.setup.quorum || votes[..node].contains(&token) {
                continue;
            }
            let setup = self.setup;
            self.then(Step::Claim(place, Action::Counts(token)), |state| {
                let claim = &mut state.claims[place];
                (claim.phase, claim.token) = (Phase::WritingBack, token);
                for node in &mut state.nodes {
                    if let Vote::Counted(counted) = node.links[place].vote {
                        node.links[place].vote = written_back(setup, counted, token);
                    }
                }
            });
        }
    }

    fn send_heartbeats(&mut self, place: usize) {
        let followed = self.state.largest_granted() > self.state.claims[place].token;
        let renews = self.state.nodes.iter().any(|node| node.awaited & bit(place) != 0);
        self.then(Step::Claim(place, Action::SendsHeartbeats), |state| {
            let claim = &mut state.claims[place];
            (claim.may_send_heartbeat, claim.followed, claim.renews) = (false, followed, renews);
            for node in &mut state.nodes {
                node.links[place].heartbeat = HeartbeatState::Sent;
            }
        });
    }
}

pub(crate) fn may_be_granted<const N: usize>(
    setup: &Setup<N>,
    state: &State<N>,
    place: usize,
) -> bool {
    let have_it = state.count(place, |link| link.vote == Vote::Confirmed);
    state.claims[place].phase == Phase::WritingBack
        && (have_it >= setup.quorum || setup.leaves_out(Rule::WriteBack))
}

pub(crate) fn grant<const N: usize>(
    setup: &Setup<N>,
    state: &mut State<N>,
    place: usize,
) -> Option<Violation> {
    let claim = state.claims[place];
    let mut violation = None;
    if state.claims.iter().any(|other| other.was_granted() && other.token == claim.token) {
        violation = Some(Violation::OneTokenTwice);
    } else if claim.token <= claim.floor {
        violation = Some(Violation::TokensOutOfOrder);
    } else if setup.clocks == Clocks::Right
        && state.claims.iter().any(|other| other.phase == Phase::Granted)
    {
        violation = Some(Violation::HeldByTwo);
    }
    state.claims[place].phase = Phase::Granted;
    state.claims[place].may_repeat = false;
    violation
}

/// The next state of a vote, once the token is known.
pub(crate) fn written_back<const N: usize>(setup: &Setup<N>, counted: u8, token: u8) -> Vote {
    match counted.cmp(&token) {
        Ordering::Less => Vote::Raising,
        Ordering::Equal => Vote::Confirmed,
        Ordering::Greater if setup.leaves_out(Rule::LargerVotesDoNotCount) => Vote::Confirmed,
        Ordering::Greater => Vote::Nothing,
    }
}
