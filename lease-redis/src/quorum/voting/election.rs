//! One round of a claim: a proposal, the votes that the nodes' batches deliver, and the task that counts them.

use std::sync::Arc;

use lease_core::FencingToken;
use lease_core::store::{Beat, Claim};

use crate::connection::batch::stopped;
use crate::error::ServerFault;
use crate::quorum::nodes::Nodes;
use crate::quorum::nodes::asked::Places;
use crate::quorum::nodes::lock_text::{Mark, digits, text_of};
use crate::quorum::voting::answer_count::{AnswerCount, Wake};
use crate::quorum::voting::ballot::{Ballot, Vote, VoteCount};
use crate::scripts::millis;

pub(crate) struct Election {
    pub(crate) proposal: Proposal,
    nodes: Arc<Nodes>,
    round: AnswerCount<Round>,
}

pub(crate) struct Proposal {
    pub(crate) claim: Claim,
    pub(crate) token: FencingToken,
    pub(crate) key: String,
    /// The text of the lock if the node accepts the proposal.
    pub(crate) text: String,
    /// The ttl is in milliseconds, after a `w` if this client waits for the key. The first proposal of the claim that
    /// was not granted may follow.
    pub(crate) ttl: String,
    pub(crate) waits: bool,
}

struct Round {
    ballot: Ballot,
    stage: Stage,
    /// Whether each vote wakes the counting task.
    counts_each: bool,
}

/// Decides what happens to a vote that arrives now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Open,
    /// Further nodes may accept the proposal, too.
    Granted,
    /// The claim continues with a larger proposal, or its outcome is unknown. Votes stay on the nodes.
    Over,
    /// Votes are withdrawn.
    Refused,
}

impl Election {
    /// With `first`, asks only these nodes at first. The claim's proposals from `earlier` on were not granted.
    pub(crate) fn open(
        nodes: &Arc<Nodes>,
        claim: &Claim,
        token: FencingToken,
        first: Option<Places>,
        earlier: Option<FencingToken>,
    ) -> OpenElection {
        let (claim, lessee) = (claim.clone(), &claim.lessee);
        let waits = nodes.watched.contains(&nodes.keys.channel(&claim.key));
        // Other waiters may rely on this mark, because only a few of many woken waiters send a claim.
        let mark = if waits { Mark::Watched } else { Mark::Unwatched };
        let (ttl, wait) = (millis(claim.ttl), if waits { "w" } else { "" });
        let earlier = earlier.map(|token| format!(" {}", digits(token.get()))).unwrap_or_default();
        let proposal = Proposal {
            token,
            key: nodes.keys.lease(&claim.key).to_string(),
            text: text_of(claim.nonce, token, Beat::GRANTED, mark, lessee),
            ttl: format!("{wait}{ttl}{earlier}"),
            waits,
            claim,
        };
        let ballot = match first {
            Some(first) => Ballot::asking(nodes.count(), first),
            None => Ballot::new(nodes.count()),
        };
        let round = Round { ballot, stage: Stage::Open, counts_each: false };
        let nodes = Arc::clone(nodes);
        OpenElection(Arc::new(Self { proposal, nodes, round: AnswerCount::new(round) }))
    }

    pub(crate) fn stage(&self) -> Stage {
        self.round.with(|round| round.stage)
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&Ballot) -> R) -> R {
        self.round.with(|round| read(&round.ballot))
    }

    /// Waits until the votes decide, until other nodes must be asked, or until a majority has answered and is
    /// split.
    pub(crate) async fn settled(&self) {
        self.round
            .wait(|round| {
                round.counts_each = false;
                round.ballot.is_settled().then_some(())
            })
            .await;
    }

    /// Returns the nodes that were not asked yet, if the claim needs their answers: their votes, or the holder.
    /// An outbid claim asks them in its next round.
    pub(crate) fn others_to_ask(&self) -> Vec<usize> {
        self.round.with(|round| match round.ballot.count() {
            VoteCount::Open => round.ballot.ask_others(),
            VoteCount::Refused if round.ballot.holder().is_none() => round.ballot.ask_others(),
            _ => Vec::new(),
        })
    }

    pub(crate) async fn until(&self, ready: impl Fn(&Ballot) -> bool + Send + Sync) {
        self.round
            .wait(|round| {
                round.counts_each = true;
                ready(&round.ballot).then_some(())
            })
            .await;
    }

    /// Votes that arrive later stay on their nodes.
    pub(crate) fn close(&self, stage: Stage) {
        self.round.with(|round| round.stage = stage);
    }

    /// Also withdraws votes that arrive later.
    pub(crate) fn refuse(&self) {
        let places: Vec<_> = self.round.with(|round| {
            round.stage = Stage::Refused;
            round.ballot.places_with_votes().collect()
        });
        self.nodes.withdraw(&self.proposal, places);
    }

    fn deliver(&self, place: usize, vote: Result<Vote, ServerFault>) {
        let is_to_withdraw = self.round.update(|round| {
            if round.stage == Stage::Open {
                round.ballot.add(place, vote);
                let wakes = round.counts_each || round.ballot.is_settled();
                return (false, if wakes { Wake::Yes } else { Wake::No });
            }
            // A request without an answer may have been applied.
            let may_stand = matches!(vote, Ok(Vote::Accepted) | Err(_));
            (round.stage == Stage::Refused && may_stand, Wake::No)
        });
        if is_to_withdraw {
            self.nodes.withdraw(&self.proposal, vec![place]);
        }
    }

    fn note_unsent(&self, place: usize) {
        self.round.update(|round| {
            if round.stage == Stage::Open {
                round.ballot.add_unsent(place, stopped());
            }
            ((), Wake::Yes)
        });
    }
}

/// If the counting task is dropped, later votes stay on the nodes, because the caller may repeat the claim.
pub(crate) struct OpenElection(Arc<Election>);

impl OpenElection {
    pub(crate) fn request(&self, place: usize) -> VoteRequest {
        VoteRequest { election: Arc::clone(&self.0), place, is_answered: false }
    }
}

impl std::ops::Deref for OpenElection {
    type Target = Election;

    fn deref(&self) -> &Election {
        &self.0
    }
}

impl Drop for OpenElection {
    fn drop(&mut self) {
        self.0.round.with(|round| {
            if round.stage == Stage::Open {
                round.stage = Stage::Over;
            }
        });
    }
}

/// Dropping a request reports that it was not sent.
pub(crate) struct VoteRequest {
    election: Arc<Election>,
    place: usize,
    is_answered: bool,
}

impl VoteRequest {
    pub(crate) fn proposal(&self) -> &Proposal {
        &self.election.proposal
    }

    pub(crate) fn stage(&self) -> Stage {
        self.election.stage()
    }

    pub(crate) fn answer(mut self, vote: Result<Vote, ServerFault>) {
        self.is_answered = true;
        self.election.deliver(self.place, vote);
    }
}

impl Drop for VoteRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            self.election.note_unsent(self.place);
        }
    }
}
