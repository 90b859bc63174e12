//! The parameters of a search: the claims, their possible actions, and the rules that are left out.

use crate::state::MOST_CLAIMS;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<const N: usize> {
    pub(crate) claims: usize,
    /// How many of the claims (the first ones) send heartbeats, are restored and release. The others end
    /// with their grant.
    pub(crate) lasting: usize,
    /// How many of the claims (the first ones) may withdraw before they are granted.
    pub(crate) withdrawing: usize,
    /// Whether the first claim was granted before the search begins, by a bare majority.
    pub(crate) begun: bool,
    /// The maximum difference between the initial counters. The search covers all sets of them.
    pub(crate) skew: u8,
    /// Whether a claim that may withdraw may be repeated once, with its nonce.
    pub(crate) repeats: bool,
    /// How often a lasting claim may be restored on any node.
    pub(crate) restores: u8,
    /// How often a node may restart without its memory.
    pub(crate) restarts: u8,
    pub(crate) clocks: Clocks,
    /// The number of nodes that grant a lease together.
    pub(crate) quorum: usize,
    pub(crate) without: Option<Rule>,
}

/// When a lease may expire on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// At any instant: confirmed promises do not depend on clocks.
    Wrong,
    /// Not before its holder has stopped relying on it. A restarted node also does not vote until then, and
    /// no grant is restored on it while earlier votes may be counted.
    Right,
}

/// A rule of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// The token is written back to a majority before the grant is answered.
    WriteBack,
    /// The token is written back only while the grant holds the key on the node.
    GuardOfWriteBack,
    /// A node whose vote is larger than the token does not count towards the grant.
    LargerVotesDoNotCount,
    /// A grant is restored only on a node that has counted no later grant.
    NotRestoredAfterAnother,
    /// A grant is restored only on a node where the key is free.
    NotRestoredOverAHolder,
    /// A grant is restored only on a node where it was not released.
    NotRestoredAfterRelease,
    /// A restored grant does not count as a heartbeat.
    RestoreDoesNotCount,
    /// A node that lost its counter continues from its time.
    TimeAfterRestart,
    /// A time that is proposed to a node is later than its start.
    ProposedSinceTheStart,
    /// A restarted node does not vote while earlier leases may be held.
    RejoinDelay,
    /// A withdrawal affects only votes of its own round or of earlier rounds.
    WithdrawalOfItsRound,
    /// A withdrawal affects no vote that a heartbeat has extended.
    ExtendedIsNotWithdrawn,
    /// After a withdrawal, the grant before the last vote is current again, not a grant before an earlier
    /// vote.
    BeforeTheLastVote,
    /// Claims may count votes from before a restart for one time-out. Meanwhile no grant is restored on the
    /// restarted node.
    RestoredAfterVotes,
}

impl<const N: usize> Setup<N> {
    /// Two claims at the same time.
    pub(crate) fn contended() -> Self {
        Self {
            claims: 2,
            lasting: 0,
            withdrawing: 0,
            begun: false,
            skew: 1,
            repeats: false,
            restores: 0,
            restarts: 0,
            clocks: Clocks::Wrong,
            quorum: N / 2 + 1,
            without: None,
        }
    }

    /// One claim was granted and lasts. Another claim competes.
    pub(crate) fn begun() -> Self {
        Self { lasting: 1, begun: true, skew: 0, restores: 1, ..Self::contended() }
    }

    pub(crate) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// The orders of the claims' names: claims with the same possible actions are interchangeable.
    pub(crate) fn orders(&self) -> Vec<[usize; MOST_CLAIMS]> {
        let role = |claim: usize| {
            let (lasts, withdraws) = (claim < self.lasting, claim < self.withdrawing);
            (self.begun && claim == 0, lasts, withdraws, claim < self.claims)
        };
        let mut orders = Vec::new();
        for first in 0..MOST_CLAIMS {
            for second in (0..MOST_CLAIMS).filter(|it| *it != first) {
                let order = [first, second, MOST_CLAIMS - first - second];
                if (0..MOST_CLAIMS).all(|place| role(order[place]) == role(place)) {
                    orders.push(order);
                }
            }
        }
        orders
    }
}
