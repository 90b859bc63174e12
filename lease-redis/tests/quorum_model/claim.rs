//! What a claim does by itself: it asks, counts, is granted, and ends.

use std::cmp::Ordering;

use crate::next::Steps;
use crate::setup::{Clocks, Rule, Setup};
use crate::state::{Beat, Freed, Phase, State, Vote, bit};
use crate::step::{Deed, Step};
use crate::violation::Violation;

impl<const N: usize> Steps<'_, N> {
    pub(crate) fn act(&mut self, place: usize) {
        let claim = self.state.claims[place];
        let (asks, lasting) = (claim.is_asking(), place < self.setup.lasting);
        let does = |deed| Step::Claim(place, deed);
        match claim.phase {
            Phase::Idle => {
                let floor = self.state.largest_granted();
                self.then(does(Deed::Asks), |state| {
                    (state.claims[place].phase, state.claims[place].floor) = (Phase::Asking, floor);
                    for node in &mut state.nodes {
                        node.links[place].vote = Vote::Asked;
                    }
                });
            }
            Phase::Asking => self.count_votes(place),
            Phase::WritingBack if is_due(self.setup, &self.state, place) => {
                let mut granted = self.state;
                let violation = grant(self.setup, &mut granted, place);
                self.then_in_spite_of(violation, does(Deed::IsGranted), |state| *state = granted);
            }
            Phase::Granted if lasting => {
                if claim.may_beat {
                    self.beat(place);
                }
                self.then(does(Deed::Releases), |state| {
                    state.claims[place].phase = Phase::Over;
                    for node in &mut state.nodes {
                        node.links[place].freed = Freed::Releasing;
                    }
                });
            }
            _ => (),
        }
        if asks && place < self.setup.withdrawing {
            self.then(does(Deed::Withdraws), |state| {
                state.claims[place].phase = Phase::GivenUp;
                for node in &mut state.nodes {
                    node.links[place].withdrawals |= 1 << claim.round();
                }
            });
        }
        if claim.may_ask_again && (asks || claim.phase == Phase::GivenUp) {
            self.ask_again(place);
        }
        if claim.is_live() && self.setup.clocks == Clocks::Right {
            self.then(does(Deed::Ends), |state| {
                let claim = &mut state.claims[place];
                claim.phase = if asks { Phase::GivenUp } else { Phase::Over };
                claim.may_ask_again = false;
            });
        }
    }

    /// A round after another, or a lessee that has heard nothing: the same nonce, and the votes
    /// are counted anew.
    fn ask_again(&mut self, place: usize) {
        self.then(Step::Claim(place, Deed::AsksAgain), |state| {
            let claim = &mut state.claims[place];
            for node in &mut state.nodes {
                let link = &mut node.links[place];
                link.doubled |= link.vote == Vote::Asked;
                if link.vote == Vote::Raising {
                    link.stale = claim.token;
                }
                link.vote = Vote::Asked;
                // What is counted from now on is asked for now.
                node.counting &= !bit(place);
            }
            (claim.phase, claim.token, claim.may_ask_again) = (Phase::Asking, 0, false);
        });
    }

    /// The largest count is the token; who counted to less is told.
    ///
    /// A majority suffices, whichever is heard first: so each count is tried that is the largest
    /// of some majority. A vote that is larger still counts as one that is heard later.
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
            self.then(Step::Claim(place, Deed::Counts(token)), |state| {
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

    fn beat(&mut self, place: usize) {
        let followed = self.state.largest_granted() > self.state.claims[place].token;
        let renews = self.state.nodes.iter().any(|node| node.awaited & bit(place) != 0);
        self.then(Step::Claim(place, Deed::Beats), |state| {
            let claim = &mut state.claims[place];
            (claim.may_beat, claim.followed, claim.renews) = (false, followed, renews);
            for node in &mut state.nodes {
                node.links[place].beat = Beat::Sent;
            }
        });
    }
}

pub(crate) fn is_due<const N: usize>(setup: &Setup<N>, state: &State<N>, place: usize) -> bool {
    let have_it = state.count(place, |link| link.vote == Vote::Stands);
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
    state.claims[place].may_ask_again = false;
    violation
}

/// What becomes of a vote, once the token is known.
pub(crate) fn written_back<const N: usize>(setup: &Setup<N>, counted: u8, token: u8) -> Vote {
    match counted.cmp(&token) {
        Ordering::Less => Vote::Raising,
        Ordering::Equal => Vote::Stands,
        Ordering::Greater if setup.leaves_out(Rule::LargerVotesDoNotCount) => Vote::Stands,
        Ordering::Greater => Vote::Nothing,
    }
}
