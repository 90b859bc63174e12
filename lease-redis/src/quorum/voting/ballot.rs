//! Counts the answers of several nodes to one proposal, and decides. Sends no requests.

use std::collections::HashMap;
use std::time::Duration;

use lease_core::{FencingToken, Holder, StoreErrorKind};

use crate::error::ServerFault;
use crate::quorum::nodes::asked::Places;
use crate::quorum::nodes::lock_text::HolderOnNode;

#[derive(Debug)]
pub(crate) enum Vote {
    Accepted,
    /// The node accepts only proposals that are larger than this number.
    Outbid(u64),
    Held(HolderOnNode),
    /// The key is free. If the proposal adopts a grant, this grant does not exist.
    Free,
}

#[derive(Debug)]
pub(crate) struct Ballot {
    responses: Vec<Response>,
    rivals: Vec<HolderOnNode>,
    outbid_by: u64,
    pub(crate) faults: Vec<ServerFault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Response {
    Unasked,
    Missing,
    Accepted,
    Outbid,
    Held,
    Free,
    Failed,
    Unsent,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum VoteCount {
    Open,
    Granted,
    Outbid(u64),
    Refused,
}

impl Ballot {
    pub(crate) fn new(nodes: usize) -> Self {
        let responses = vec![Response::Missing; nodes];
        Self { responses, rivals: Vec::new(), outbid_by: 0, faults: Vec::new() }
    }

    /// The other nodes are asked [later](Self::ask_others), or not at all.
    pub(crate) fn asking(nodes: usize, first: Places) -> Self {
        let mut ballot = Self::new(nodes);
        for (place, response) in ballot.responses.iter_mut().enumerate() {
            if !first.contains(place) {
                *response = Response::Unasked;
            }
        }
        ballot
    }

    /// Returns the nodes that must be asked now.
    pub(crate) fn ask_others(&mut self) -> Vec<usize> {
        let others: Vec<_> = self.places(|response| response == Response::Unasked).collect();
        for place in &others {
            self.respond(*place, Response::Missing);
        }
        others
    }

    pub(crate) fn add(&mut self, node: usize, vote: Result<Vote, ServerFault>) {
        let response = match vote {
            Ok(Vote::Accepted) => Response::Accepted,
            Ok(Vote::Outbid(number)) => {
                self.outbid_by = self.outbid_by.max(number);
                Response::Outbid
            }
            Ok(Vote::Held(rival)) => {
                self.rivals.push(rival);
                Response::Held
            }
            Ok(Vote::Free) => Response::Free,
            Err(fault) => {
                self.faults.push(fault);
                Response::Failed
            }
        };
        self.respond(node, response);
    }

    pub(crate) fn add_unsent(&mut self, node: usize, fault: ServerFault) {
        self.faults.push(fault);
        self.respond(node, Response::Unsent);
    }

    fn respond(&mut self, node: usize, response: Response) {
        if let Some(known) = self.responses.get_mut(node) {
            *known = response;
        }
    }

    pub(crate) fn count(&self) -> VoteCount {
        let (quorum, accepted) = (self.majority(), self.accepted());
        let open = self.missing() + self.unasked();
        if accepted >= quorum {
            VoteCount::Granted
        } else if accepted + open >= quorum {
            VoteCount::Open
        } else if accepted + self.of(Response::Outbid) + open >= quorum {
            VoteCount::Outbid(self.outbid_by)
        } else {
            VoteCount::Refused
        }
    }

    pub(crate) fn count_without_missing(&self) -> VoteCount {
        let accepted = self.accepted();
        if accepted >= self.majority() {
            VoteCount::Granted
        } else if accepted + self.of(Response::Outbid) >= self.majority() {
            VoteCount::Outbid(self.outbid_by)
        } else {
            VoteCount::Refused
        }
    }

    /// Returns a number if a majority has answered and other claims or larger counters compete.
    pub(crate) fn needed_of_missing(&self) -> Option<usize> {
        let contended = !self.rivals.is_empty() || self.of(Response::Outbid) > 0;
        let needed = contended && self.answered() >= self.majority();
        needed.then(|| self.majority().saturating_sub(self.accepted()))
    }

    /// The counting task must act if the votes decide, or if a majority has answered and is split.
    pub(crate) fn is_settled(&self) -> bool {
        self.count() != VoteCount::Open || self.needed_of_missing().is_some() || self.needs_others()
    }

    /// The nodes that were asked cannot grant the claim. If one of them has another claim, the others usually
    /// have it, too. Then their answers show the holder, and no other node need be asked.
    fn needs_others(&self) -> bool {
        let decides = self.missing() == 0 || !self.has_rivals();
        self.unasked() > 0 && self.accepted() + self.missing() < self.majority() && decides
    }

    pub(crate) fn accepted(&self) -> usize {
        self.of(Response::Accepted)
    }

    pub(crate) fn missing(&self) -> usize {
        self.of(Response::Missing)
    }

    fn unasked(&self) -> usize {
        self.of(Response::Unasked)
    }

    pub(crate) fn has_asked_all(&self) -> bool {
        self.unasked() == 0
    }

    pub(crate) fn missing_places(&self) -> impl Iterator<Item = usize> {
        self.places(|response| response == Response::Missing)
    }

    /// A missing node may get a vote later.
    pub(crate) fn places_with_votes(&self) -> impl Iterator<Item = usize> {
        use Response::{Accepted, Failed, Outbid};

        self.places(|response| matches!(response, Accepted | Outbid | Failed))
    }

    pub(crate) fn has_responded(&self, node: usize) -> bool {
        let open = [Response::Unasked, Response::Missing];
        self.responses.get(node).is_some_and(|response| !open.contains(response))
    }

    pub(crate) fn responses(&self) -> usize {
        self.responses.len() - self.missing() - self.unasked()
    }

    pub(crate) fn answered(&self) -> usize {
        self.responses() - self.of(Response::Failed) - self.of(Response::Unsent)
    }

    pub(crate) fn has_rivals(&self) -> bool {
        !self.rivals.is_empty()
    }

    /// No other lessee can hold the key.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let (nonce, votes) = self.strongest()?;
        (votes >= self.majority()).then(|| self.holder_of(nonce))?
    }

    /// A node that missed the last proposal has an earlier token until the next heartbeat.
    pub(crate) fn holder_is_agreed(&self) -> bool {
        let Some((nonce, _)) = self.strongest() else { return false };
        most_frequent(self.tokens_of(nonce)).is_some_and(|(_, votes)| votes >= self.majority())
    }

    pub(crate) fn holder_may_appear(&self) -> bool {
        let votes = self.strongest().map_or(0, |(_, votes)| votes);
        votes + self.missing() + self.unasked() >= self.majority()
    }

    /// Like [`holder_may_appear`](Self::holder_may_appear), but also counts nodes that returned an error.
    pub(crate) fn holder_may_be_unknown(&self) -> bool {
        let votes = self.strongest().map_or(0, |(_, votes)| votes);
        votes + self.missing() + self.faults.len() >= self.majority()
    }

    pub(crate) fn is_free(&self) -> bool {
        self.of(Response::Free) >= self.majority()
    }

    pub(crate) fn nearest(&self) -> Option<Holder> {
        self.holder_of(self.strongest()?.0)
    }

    /// The claim with the most votes leads. On a tie, the claim with the largest nonce leads. All claims that see
    /// the same votes choose the same claim.
    pub(crate) fn leads(&self, nonce: &str) -> bool {
        let own = (self.accepted(), nonce);
        let strongest = self.strongest().map(|(rival, votes)| (votes, rival));
        self.accepted() > 0 && strongest.is_none_or(|rival| rival < own)
    }

    fn free_in(&self) -> Option<Duration> {
        let mut left: Vec<_> =
            self.rivals.iter().filter_map(|rival| rival.holder.expires_in).collect();
        left.sort_unstable();
        let needed = self.majority().saturating_sub(self.responses.len() - left.len()).max(1);
        left.get(needed - 1).copied()
    }

    fn strongest(&self) -> Option<(&str, usize)> {
        let mut votes: HashMap<&str, usize> = HashMap::new();
        for rival in &self.rivals {
            *votes.entry(rival.nonce.as_str()).or_default() += 1;
        }
        votes.into_iter().max_by_key(|(nonce, votes)| (*votes, *nonce))
    }

    fn holder_of(&self, nonce: &str) -> Option<Holder> {
        let (token, _) = most_frequent(self.tokens_of(nonce))?;
        let rival = self.rivals.iter().find(|rival| rival.nonce == nonce)?;
        let mut holder = rival.holder.clone().with_token(token);
        holder.expires_in = self.free_in();
        Some(holder)
    }

    fn tokens_of(&self, nonce: &str) -> impl Iterator<Item = FencingToken> {
        let of_nonce = self.rivals.iter().filter(move |rival| rival.nonce == nonce);
        of_nonce.filter_map(|rival| rival.holder.token)
    }

    fn majority(&self) -> usize {
        majority(self.responses.len())
    }

    fn of(&self, response: Response) -> usize {
        self.responses.iter().filter(|known| **known == response).count()
    }

    fn places(&self, which: impl Fn(Response) -> bool) -> impl Iterator<Item = usize> {
        let places = self.responses.iter().enumerate();
        places.filter_map(move |(place, response)| which(*response).then_some(place))
    }
}

pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// On a tie, returns the largest token.
fn most_frequent(tokens: impl Iterator<Item = FencingToken>) -> Option<(FencingToken, usize)> {
    let mut counts: HashMap<FencingToken, usize> = HashMap::new();
    for token in tokens {
        *counts.entry(token).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(token, count)| (*count, *token))
}

pub(crate) fn too_few(present: usize, of: usize, faults: &[ServerFault]) -> ServerFault {
    let reasons: Vec<_> = faults.iter().map(ToString::to_string).collect();
    // A retry may succeed if one of the errors is transient.
    let transient = faults.iter().find(|fault| fault.is_transient()).or_else(|| faults.first());
    let kind = transient.map_or(StoreErrorKind::Unavailable, |fault| fault.kind);
    let needed = majority(of);
    ServerFault::new(
        kind,
        format!(
            "{present} of {of} nodes took part, and {needed} are needed: {}",
            reasons.join("; ")
        ),
    )
}
