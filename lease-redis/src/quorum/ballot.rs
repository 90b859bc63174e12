//! Counting: what the answers of several nodes come to. Decides; asks nobody.

use std::collections::HashMap;
use std::time::Duration;

use lease_core::{Attributes, FencingToken, Heartbeat, Holder, LossCause};

use crate::error::Fault;
use crate::lock::{Asked, Pulse, Rival, Vote};

/// The votes on one claim.
#[derive(Debug)]
pub(crate) struct Ballot {
    nodes: usize,
    /// By place, whether the node answered or failed.
    heard: Vec<bool>,
    /// Who granted it, and what they counted to.
    pub(crate) granted: Vec<(usize, FencingToken)>,
    pub(crate) rivals: Vec<(usize, Rival)>,
    pub(crate) faults: Vec<Fault>,
    /// Nodes on which there was nothing to adopt.
    gone: usize,
    pub(crate) attributes: Attributes,
    /// Whether some node had granted it before.
    pub(crate) asked: Asked,
}

/// What a ballot says so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Open,
    /// A majority granted it; the largest token is the grant's.
    Granted(FencingToken),
    /// No majority can grant it any more.
    Refused,
}

impl Ballot {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            heard: vec![false; nodes],
            granted: Vec::new(),
            rivals: Vec::new(),
            faults: Vec::new(),
            gone: 0,
            attributes: Attributes::new(),
            asked: Asked::First,
        }
    }

    pub(crate) fn add(&mut self, node: usize, vote: Result<Vote, Fault>) {
        if let Some(heard) = self.heard.get_mut(node) {
            *heard = true;
        }
        match vote {
            Ok(Vote::Granted(token, attributes, asked)) => {
                self.granted.push((node, token));
                self.attributes = attributes;
                if asked == Asked::Again {
                    self.asked = asked;
                }
            }
            Ok(Vote::Held(rival)) => self.rivals.push((node, rival)),
            Ok(Vote::Gone) => self.gone += 1,
            // Where the node's name is known, this is a fault already.
            Ok(Vote::Restarted { up }) => {
                self.faults.push(Fault::unavailable(format!("restarted {up:?} ago")));
            }
            Err(fault) => self.faults.push(fault),
        }
    }

    pub(crate) fn count(&self) -> Count {
        let quorum = majority(self.nodes);
        let largest = self.granted.iter().map(|(_, token)| *token).max();
        match largest {
            Some(largest) if self.granted.len() >= quorum => Count::Granted(largest),
            _ if self.granted.len() + self.missing() < quorum => Count::Refused,
            _ => Count::Open,
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
        let places = self.heard.iter().enumerate();
        places.filter_map(|(place, heard)| (!heard).then_some(place))
    }

    /// How many of the nodes that have not answered have to grant the claim, where a majority has
    /// answered and does not agree. `None` where nothing but these nodes' answers decides.
    pub(crate) fn needed_of_missing(&self) -> Option<usize> {
        let quorum = majority(self.nodes);
        let contended = !self.rivals.is_empty() && self.answered() >= quorum;
        contended.then(|| quorum.saturating_sub(self.granted.len()))
    }

    /// Nodes that said yes or no.
    pub(crate) fn answered(&self) -> usize {
        self.granted.len() + self.rivals.len() + self.gone
    }

    /// Who holds the key on a majority of the nodes: then nobody else can.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let (nonce, votes) = self.strongest()?;
        (votes >= majority(self.nodes)).then(|| self.holder_of(nonce))?
    }

    /// Whether a majority tells the same token of the holder. The others have counted differently,
    /// and will hear of it in a moment.
    pub(crate) fn holder_is_agreed(&self) -> bool {
        let Some((nonce, _)) = self.strongest() else { return false };
        let of_nonce = self.rivals.iter().filter(|(_, rival)| rival.nonce == nonce);
        most_frequent(of_nonce.map(|(_, rival)| rival.holder.token))
            .is_some_and(|(_, votes)| votes >= majority(self.nodes))
    }

    /// Whether somebody may yet turn out to hold it on a majority.
    pub(crate) fn holder_may_appear(&self) -> bool {
        let votes = self.strongest().map_or(0, |(_, votes)| votes);
        votes + self.missing() >= majority(self.nodes)
    }

    /// The same, also of nodes that will not answer.
    pub(crate) fn holder_may_be_unheard(&self) -> bool {
        let votes = self.strongest().map_or(0, |(_, votes)| votes);
        votes + self.missing() + self.faults.len() >= majority(self.nodes)
    }

    /// Whether a majority says that there is nothing to adopt.
    pub(crate) fn nobody_has_it(&self) -> bool {
        self.gone >= majority(self.nodes)
    }

    /// Who is nearest to holding it.
    pub(crate) fn nearest(&self) -> Option<Holder> {
        self.holder_of(self.strongest()?.0)
    }

    /// Whether the claim of `nonce` keeps its votes among those that split the nodes: it has the most
    /// votes, and of several that have as many, the largest nonce. Claims that see the same nodes held
    /// agree on it, so one of them does.
    pub(crate) fn goes_first(&self, nonce: &str) -> bool {
        let own = (self.granted.len(), nonce);
        let strongest = self.strongest().map(|(rival, votes)| (votes, rival));
        !self.granted.is_empty() && strongest.is_none_or(|rival| rival < own)
    }

    /// When so many nodes are free that a majority may be obtained.
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
        let (token, _) = most_frequent(of_nonce().map(|(_, rival)| rival.holder.token))?;
        let lessee = of_nonce().next().map(|(_, rival)| rival.holder.lessee.clone())?;
        Some(Holder::new(lessee, token, self.free_in()))
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
    /// Nodes that have forgotten it.
    pub(crate) missing: Vec<usize>,
    faults: Vec<Fault>,
}

/// What a tally says so far.
#[derive(Debug)]
pub(crate) enum Told {
    NotYet,
    Answer(Heartbeat),
    /// Too few said anything that counts.
    Unclear(Fault),
}

impl Tally {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    pub(crate) fn add(&mut self, node: usize, pulse: Result<Pulse, Fault>) {
        match pulse {
            Ok(Pulse::Extended) => self.extended += 1,
            Ok(Pulse::Overtaken) => self.overtaken += 1,
            Ok(Pulse::Superseded) => self.superseded += 1,
            Ok(Pulse::Revoked) => self.revoked += 1,
            Ok(Pulse::Missing) => self.missing.push(node),
            Err(fault) => self.faults.push(fault),
        }
    }

    pub(crate) fn count(&self) -> Told {
        let quorum = majority(self.nodes);
        let standing = self.extended + self.overtaken;
        let ended = self.superseded + self.revoked;
        let answered = standing + ended + self.missing.len();
        let outstanding = self.nodes - answered - self.faults.len();

        if self.extended >= quorum {
            return Told::Answer(Heartbeat::Extended);
        }
        if standing >= quorum && self.extended + outstanding < quorum {
            return Told::Answer(Heartbeat::Overtaken);
        }
        if ended >= quorum {
            return Told::Answer(Heartbeat::Lost(self.cause()));
        }
        if outstanding > 0 {
            return Told::NotYet;
        }
        // Nobody has it any more. One node that still had it would show that time is left, and
        // that the others forgot it: then it is put back, and counts next time.
        if standing == 0 && ended + self.missing.len() >= quorum {
            return Told::Answer(Heartbeat::Lost(self.cause()));
        }
        Told::Unclear(crate::quorum_config::too_few(standing, self.nodes, &self.unheard()))
    }

    /// Whether the grant may be given back to the nodes that have forgotten it: some other node
    /// still has it.
    pub(crate) fn may_be_put_back(&self) -> bool {
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

    fn unheard(&self) -> Vec<Fault> {
        let mut unheard = self.faults.clone();
        if !self.missing.is_empty() {
            let count = self.missing.len();
            unheard.push(Fault::unavailable(format!("{count} had forgotten the grant")));
        }
        unheard
    }
}

pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What most say; of two that as many say, the larger.
fn most_frequent(tokens: impl Iterator<Item = FencingToken>) -> Option<(FencingToken, usize)> {
    let mut counts: HashMap<FencingToken, usize> = HashMap::new();
    for token in tokens {
        *counts.entry(token).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(token, count)| (*count, *token))
}
