//! Counts the answers of several nodes and decides. It sends no requests.

use std::collections::HashMap;
use std::time::Duration;

use lease_core::store::Heartbeat;
use lease_core::{Attributes, FencingToken, Holder, LossCause, StoreErrorKind};

use crate::error::ServerFault;
use crate::lock_requests::{GrantKind, HeartbeatReply, HolderOnServer, Vote};

/// The votes on one claim.
#[derive(Debug)]
pub(crate) struct Ballot {
    nodes: usize,
    /// By index, whether the node has answered or failed.
    responded: Vec<bool>,
    /// The nodes that granted the claim, and their counters.
    pub(crate) granted: Vec<(usize, FencingToken)>,
    pub(crate) rivals: Vec<(usize, HolderOnServer)>,
    pub(crate) faults: Vec<ServerFault>,
    /// The number of nodes without the grant to adopt.
    gone: usize,
    pub(crate) attributes: Attributes,
    /// Whether a node has granted the claim before.
    pub(crate) kind: GrantKind,
}

/// The count of the votes so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum VoteCount {
    Open,
    /// A majority granted the claim. The largest token is the grant's.
    Granted(FencingToken),
    /// No majority can grant the claim any more.
    Refused,
}

impl Ballot {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            responded: vec![false; nodes],
            granted: Vec::new(),
            rivals: Vec::new(),
            faults: Vec::new(),
            gone: 0,
            attributes: Attributes::new(),
            kind: GrantKind::New,
        }
    }

    pub(crate) fn add(&mut self, node: usize, vote: Result<Vote, ServerFault>) {
        if let Some(responded) = self.responded.get_mut(node) {
            *responded = true;
        }
        match vote {
            Ok(Vote::Granted(token, attributes, kind)) => {
                self.granted.push((node, token));
                self.attributes = attributes;
                if kind == GrantKind::Repeated {
                    self.kind = kind;
                }
            }
            Ok(Vote::Held(rival)) => self.rivals.push((node, rival)),
            Ok(Vote::Gone) => self.gone += 1,
            Err(fault) => self.faults.push(fault),
        }
    }

    pub(crate) fn count(&self) -> VoteCount {
        let quorum = majority(self.nodes);
        let largest = self.granted.iter().map(|(_, token)| *token).max();
        match largest {
            Some(largest) if self.granted.len() >= quorum => VoteCount::Granted(largest),
            _ if self.granted.len() + self.missing() < quorum => VoteCount::Refused,
            _ => VoteCount::Open,
        }
    }

    /// The token that a majority has given.
    pub(crate) fn agreed(&self) -> Option<FencingToken> {
        let (token, votes) = most_frequent(self.granted.iter().map(|(_, token)| *token))?;
        (votes >= majority(self.nodes)).then_some(token)
    }

    /// Nodes that have not answered yet.
    pub(crate) fn missing(&self) -> usize {
        self.nodes - self.answered() - self.faults.len()
    }

    /// The places of the nodes that have not answered yet.
    pub(crate) fn missing_places(&self) -> impl Iterator<Item = usize> {
        let places = self.responded.iter().enumerate();
        places.filter_map(|(place, responded)| (!responded).then_some(place))
    }

    /// Returns how many of the missing nodes must grant the claim, if a majority has answered and is
    /// split. Returns `None` if only the answers of the missing nodes can decide.
    pub(crate) fn needed_of_missing(&self) -> Option<usize> {
        let quorum = majority(self.nodes);
        let contended = !self.rivals.is_empty() && self.answered() >= quorum;
        contended.then(|| quorum.saturating_sub(self.granted.len()))
    }

    /// Nodes that have granted or refused the claim.
    pub(crate) fn answered(&self) -> usize {
        self.granted.len() + self.rivals.len() + self.gone
    }

    /// The holder on a majority of the nodes. No other lessee can hold the key.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let (nonce, votes) = self.strongest()?;
        (votes >= majority(self.nodes)).then(|| self.holder_of(nonce))?
    }

    /// Whether a majority reports the same token of the holder. Nodes with other counters receive the token
    /// shortly.
    pub(crate) fn holder_is_agreed(&self) -> bool {
        let Some((nonce, _)) = self.strongest() else { return false };
        let of_nonce = self.rivals.iter().filter(|(_, rival)| rival.nonce == nonce);
        most_frequent(of_nonce.filter_map(|(_, rival)| rival.holder.token))
            .is_some_and(|(_, votes)| votes >= majority(self.nodes))
    }

    /// Whether the missing answers may show a holder on a majority.
    pub(crate) fn holder_may_appear(&self) -> bool {
        let votes = self.strongest().map_or(0, |(_, votes)| votes);
        votes + self.missing() >= majority(self.nodes)
    }

    /// As [`holder_may_appear`](Self::holder_may_appear), but also counts nodes that have failed.
    pub(crate) fn holder_may_be_unknown(&self) -> bool {
        let votes = self.strongest().map_or(0, |(_, votes)| votes);
        votes + self.missing() + self.faults.len() >= majority(self.nodes)
    }

    /// Whether a majority reports that the grant to adopt does not exist.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone >= majority(self.nodes)
    }

    /// The lessee with the most votes.
    pub(crate) fn nearest(&self) -> Option<Holder> {
        self.holder_of(self.strongest()?.0)
    }

    /// Whether the claim of `nonce` keeps its votes when several claims split the nodes. The claim with the
    /// most votes does; on a tie, the claim with the largest nonce. All claims that see the same votes choose
    /// the same claim.
    pub(crate) fn keeps_votes(&self, nonce: &str) -> bool {
        let own = (self.granted.len(), nonce);
        let strongest = self.strongest().map(|(rival, votes)| (votes, rival));
        !self.granted.is_empty() && strongest.is_none_or(|rival| rival < own)
    }

    /// Returns the time until enough nodes are free for a majority.
    fn free_in(&self) -> Option<Duration> {
        let mut left: Vec<_> =
            self.rivals.iter().filter_map(|(_, rival)| rival.holder.expires_in).collect();
        left.sort_unstable();
        let needed = majority(self.nodes).saturating_sub(self.nodes - left.len()).max(1);
        left.get(needed - 1).copied()
    }

    fn strongest(&self) -> Option<(&str, usize)> {
        let mut votes: HashMap<&str, usize> = HashMap::new();
        for (_, rival) in &self.rivals {
            *votes.entry(rival.nonce.as_str()).or_default() += 1;
        }
        votes.into_iter().max_by_key(|(nonce, votes)| (*votes, *nonce))
    }

    fn holder_of(&self, nonce: &str) -> Option<Holder> {
        let of_nonce = || self.rivals.iter().filter(|(_, rival)| rival.nonce == nonce);
        let (token, _) = most_frequent(of_nonce().filter_map(|(_, rival)| rival.holder.token))?;
        let lessee = of_nonce().next().map(|(_, rival)| rival.holder.lessee.clone())?;
        Some(Holder::new(lessee, self.free_in()).named_by(token))
    }
}

/// The answers to one heartbeat.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    nodes: usize,
    extended: usize,
    overtaken: usize,
    superseded: usize,
    revoked: usize,
    /// Nodes that have forgotten the grant.
    pub(crate) missing: Vec<usize>,
    faults: Vec<ServerFault>,
}

/// The count of a heartbeat's replies so far.
#[derive(Debug)]
pub(crate) enum HeartbeatCount {
    Open,
    Decided(Heartbeat),
    /// Too few nodes sent a reply that counts.
    Undecided(ServerFault),
}

impl Tally {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    pub(crate) fn add(&mut self, node: usize, reply: Result<HeartbeatReply, ServerFault>) {
        match reply {
            Ok(HeartbeatReply::Extended) => self.extended += 1,
            Ok(HeartbeatReply::Overtaken) => self.overtaken += 1,
            Ok(HeartbeatReply::Superseded) => self.superseded += 1,
            Ok(HeartbeatReply::Revoked) => self.revoked += 1,
            Ok(HeartbeatReply::Missing) => self.missing.push(node),
            Err(fault) => self.faults.push(fault),
        }
    }

    pub(crate) fn count(&self) -> HeartbeatCount {
        let quorum = majority(self.nodes);
        let standing = self.extended + self.overtaken;
        let ended = self.superseded + self.revoked;
        let answered = standing + ended + self.missing.len();
        let outstanding = self.nodes - answered - self.faults.len();

        if self.extended >= quorum {
            return HeartbeatCount::Decided(Heartbeat::Extended);
        }
        if standing >= quorum && self.extended + outstanding < quorum {
            return HeartbeatCount::Decided(Heartbeat::Overtaken);
        }
        if ended >= quorum {
            return HeartbeatCount::Decided(Heartbeat::Lost(self.cause()));
        }
        if outstanding > 0 {
            return HeartbeatCount::Open;
        }
        // No node that answered has the grant. If one had it, the count would stay undecided, and the grant
        // would be restored on the other nodes for the next heartbeat.
        if standing == 0 && ended + self.missing.len() >= quorum {
            return HeartbeatCount::Decided(Heartbeat::Lost(self.cause()));
        }
        HeartbeatCount::Undecided(too_few(standing, self.nodes, &self.reasons()))
    }

    /// Whether the grant may be restored on the nodes that have forgotten it: another node still has it.
    pub(crate) fn may_be_restored(&self) -> bool {
        self.extended > 0
    }

    fn cause(&self) -> LossCause {
        if self.superseded > 0 {
            LossCause::Superseded
        } else if self.revoked > 0 {
            LossCause::Revoked
        } else {
            LossCause::Expired
        }
    }

    fn reasons(&self) -> Vec<ServerFault> {
        let mut reasons = self.faults.clone();
        if !self.missing.is_empty() {
            let count = self.missing.len();
            reasons.push(ServerFault::unavailable(format!("{count} have forgotten the grant")));
        }
        reasons
    }
}

pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The most frequent token; on a tie, the largest.
fn most_frequent(tokens: impl Iterator<Item = FencingToken>) -> Option<(FencingToken, usize)> {
    let mut counts: HashMap<FencingToken, usize> = HashMap::new();
    for token in tokens {
        *counts.entry(token).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(token, count)| (*count, *token))
}

/// The error if fewer than a majority took part, with each node's reason.
pub(crate) fn too_few(present: usize, of: usize, faults: &[ServerFault]) -> ServerFault {
    let reasons: Vec<_> = faults.iter().map(ToString::to_string).collect();
    // The joint error is transient if one of the errors is: a retry may then succeed.
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
