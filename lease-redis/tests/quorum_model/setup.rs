//! What is searched: who takes part, what each may do, and which rules are left out.

use crate::state::MOST_CLAIMS;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<const N: usize> {
    pub(crate) claims: usize,
    /// How many of the claims heartbeat, are put back and release: the first ones. The others end
    /// with their grant.
    pub(crate) lasting: usize,
    /// How many of the claims may withdraw, as long as they are not granted: the first ones.
    pub(crate) withdrawing: usize,
    /// Whether the first claim was granted before the search begins, by a bare majority.
    pub(crate) begun: bool,
    /// How far apart the counters are to begin with: every such set of them is searched.
    pub(crate) skew: u8,
    /// Whether a claim that may withdraw may ask once more, under its nonce.
    pub(crate) asks_again: bool,
    /// How many times a lasting claim may be put back, on any node.
    pub(crate) put_backs: u8,
    /// How often a node may restart without its memory.
    pub(crate) restarts: u8,
    pub(crate) clocks: Clocks,
    /// How many nodes grant a lease together.
    pub(crate) quorum: usize,
    pub(crate) without: Option<Rule>,
}

/// When a node may let a lease run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// At any instant: nothing that is found to hold rests on a clock.
    Wrong,
    /// Not before its holder has ceased to believe in it. A node that restarted keeps from
    /// voting until then, too, and is given nothing back while votes of before may be counted.
    Right,
}

/// A rule of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// The token is written back to a majority before the grant is answered.
    WriteBack,
    /// It is written only while the node's key is the grant's.
    GuardOfWriteBack,
    /// A node whose vote is larger than the token does not stand for it.
    LargerVotesDoNotCount,
    /// A grant is put back only where none came after it.
    NotPutBackAfterAnother,
    /// A grant is put back only where nobody has the key.
    NotPutBackOverAHolder,
    /// A grant is put back only where it was not released.
    NotPutBackAfterRelease,
    /// Being put back does not count as a heartbeat.
    PutBackDoesNotCount,
    /// A node that lost its counter goes on from its time.
    TimeAfterRestart,
    /// The time that is proposed to it instead is none of before it started.
    ProposedSinceTheStart,
    /// A node that restarted keeps from voting while leases of before may be held.
    Quarantine,
    /// A withdrawal takes back only votes of its own round, or of an earlier one.
    WithdrawalOfItsRound,
    /// It takes back no vote that a heartbeat has extended.
    ExtendedIsNotWithdrawn,
    /// What was granted before is what was granted before the last vote, not before an earlier.
    BeforeTheLastVote,
    /// A node that restarted is given nothing back while votes of before may be counted: these
    /// count for a time-out, and the node is left alone for as long.
    PutBackAfterVotes,
}

impl<const N: usize> Setup<N> {
    /// Two claims that come together.
    pub(crate) fn contended() -> Self {
        Self {
            claims: 2,
            lasting: 0,
            withdrawing: 0,
            begun: false,
            skew: 1,
            asks_again: false,
            put_backs: 0,
            restarts: 0,
            clocks: Clocks::Wrong,
            quorum: N / 2 + 1,
            without: None,
        }
    }

    /// One claim was granted, and lasts; another comes.
    pub(crate) fn begun() -> Self {
        Self { lasting: 1, begun: true, skew: 0, put_backs: 1, ..Self::contended() }
    }

    pub(crate) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// The orders in which claims may be named: those that may do the same are interchangeable.
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
