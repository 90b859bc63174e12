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
    /// These nodes have a larger token, or a vote for another claim.
    superseded: Vec<usize>,
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
            Ok(HeartbeatReply::Superseded) => self.superseded.push(node),
            Ok(HeartbeatReply::Revoked) => self.revoked += 1,
            Ok(HeartbeatReply::Missing) => self.missing.push(node),
            Err(fault) => self.faults.push(fault),
        }
    }

    pub(crate) fn count(&self) -> HeartbeatCount {
        let quorum = majority(self.nodes);
        let standing = self.extended + self.overtaken;
        let ended = self.superseded.len() + self.revoked;
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

    /// With the nodes that have no grant yet, a majority can extend the lease in a further round. A node that has a
    /// vote for another claim has no grant yet, if the claim gets no majority.
    pub(crate) fn may_spread(&self) -> bool {
        let able = self.extended + self.missing.len() + self.superseded.len();
        self.extended > 0 && self.extended < majority(self.nodes) && able >= majority(self.nodes)
    }

    pub(crate) fn meets_other_claims(&self) -> bool {
        !self.superseded.is_empty()
    }

    pub(crate) fn take_without_grant(&mut self) -> Vec<usize> {
        let mut places = std::mem::take(&mut self.missing);
        places.extend(&self.superseded);
        places
    }

    pub(crate) fn may_be_restored(&self) -> bool {
        self.extended > 0
    }

    fn cause(&self) -> LossCause {
        if !self.superseded.is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One node of a new lease fails, and the nodes without the lease have votes for another claim.
    #[test]
    fn votes_for_another_claim_leave_a_heartbeat_undecided() {
        let mut tally = Tally::new(5);
        for node in [0, 1] {
            tally.add(node, Ok(HeartbeatReply::Extended));
        }
        for node in [2, 3] {
            tally.add(node, Ok(HeartbeatReply::Superseded));
        }
        tally.add(4, Err(ServerFault::unavailable("hung")));

        assert!(matches!(tally.count(), HeartbeatCount::Undecided(_)));
        assert!(tally.may_spread());
        assert_eq!(tally.take_without_grant(), [2, 3]);
    }
}
