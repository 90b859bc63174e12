//! Counts the nodes' replies to one heartbeat, and decides. Sends no requests.

use lease_core::LossCause;
use lease_core::store::Heartbeat;

use crate::error::ServerFault;
use crate::quorum::nodes::requests::HeartbeatReply;
use crate::quorum::voting::ballot::{majority, too_few};

#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    nodes: usize,
    extended: usize,
    overtaken: usize,
    superseded: usize,
    revoked: usize,
    pub(crate) missing: Vec<usize>,
    faults: Vec<ServerFault>,
}

#[derive(Debug)]
pub(crate) enum HeartbeatCount {
    Open,
    Decided(Heartbeat),
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
        // No node that answered has the grant. With such a node, the count would stay undecided, and the next
        // heartbeat could use restored grants.
        if standing == 0 && ended + self.missing.len() >= quorum {
            return HeartbeatCount::Decided(Heartbeat::Lost(self.cause()));
        }
        HeartbeatCount::Undecided(too_few(standing, self.nodes, &self.reasons()))
    }

    /// With the nodes that have no grant yet, a majority can extend the lease in the next round.
    pub(crate) fn may_spread(&self) -> bool {
        let able = self.extended + self.missing.len();
        self.extended > 0 && self.extended < majority(self.nodes) && able >= majority(self.nodes)
    }

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
