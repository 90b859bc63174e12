//! The parameters of a search: the claims, their possible actions, and the rules that are left out.

use crate::state::MOST_CLAIMS;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<const N: usize> {
    pub(crate) claims: usize,
    /// The number of claims, from the first, that send heartbeats, are restored and release. Other claims end
    /// when they are granted.
    pub(crate) lasting: usize,
    /// The number of claims, from the first, that may withdraw before they are granted.
    pub(crate) withdrawing: usize,
    /// The claims that may be repeated once, with a larger proposal.
    pub(crate) repeating: [bool; MOST_CLAIMS],
    /// Whether these claims may also be repeated after they were granted or released.
    pub(crate) repeats_grants: bool,
    /// The number of claims, after the first, that adopt the grant of the first claim.
    pub(crate) adopting: usize,
    /// Whether a release reserves the key.
    pub(crate) reserves: bool,
    /// Whether the first claim was granted before the search begins, by a bare majority.
    pub(crate) begun: bool,
    /// The largest initial counter. The search covers all sets of counters and of absent counters.
    pub(crate) skew: u8,
    /// The largest proposal. The search covers all proposals.
    pub(crate) largest: u8,
    /// The number of times that a grant of a `lasting` claim may be restored, on all nodes together.
    pub(crate) restores: u8,
    /// The number of times that a node may restart without its memory.
    pub(crate) restarts: u8,
    pub(crate) clocks: Clocks,
    /// The number of votes that grant a lease.
    pub(crate) quorum: usize,
    pub(crate) without: Option<Rule>,
}

/// The times at which a lease may expire on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// At any instant. So promises that are found kept do not depend on clocks.
    Wrong,
    /// Only after the holder has stopped relying on it. A restarted node also does not vote until then, and
    /// no grant is restored on it while earlier votes may be counted.
    Right,
}

/// A rule of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// A node accepts only a proposal that is larger than its counter.
    LargerThanTheCounter,
    /// A node on which the claim already holds the key also accepts only a larger proposal.
    LargerThanTheCounterForTheHolder,
    /// A node that lost its counter accepts only proposals that are larger than the lost counter.
    TimeAfterRestart,
    /// Only votes for the same proposal count together.
    VotesForOneProposal,
    /// A repeated claim proposes a larger token.
    LargerProposal,
    /// A withdrawal affects only votes for its own proposal or for smaller proposals.
    WithdrawalOfItsProposal,
    /// A heartbeat raises the token of a vote from an earlier round.
    HeartbeatRaisesToken,
    /// A heartbeat does not extend a grant with a larger token.
    NotExtendedWithLargerToken,
    /// A grant is restored only on a node whose counter is not larger than its token.
    NotRestoredAfterAnother,
    /// A grant is restored only on a node where the key is free.
    NotRestoredOverAHolder,
    /// A restore writes no counter on a node without one.
    RestoreWritesNoCounter,
    /// A restored grant does not count as a heartbeat.
    RestoreDoesNotCount,
    /// Claims may count votes from before a restart for one time-out. Meanwhile no grant is restored on the
    /// restarted node.
    RestoredAfterVotes,
    /// A release makes the counter larger than its token.
    ReleaseRaisesCounter,
    /// A release on a node without a counter writes the node's time, if this time is larger than the token.
    ReleaseKeepsTime,
    /// A release affects only a grant with the release's token or with a smaller token.
    ReleaseOfItsToken,
    /// A release also raises the bound from before the last vote, because that vote may be withdrawn.
    ReleaseRaisesTheFormerBound,
    /// After a withdrawal, the bound from before the vote applies again.
    WithdrawnVoteLeavesNoTrace,
    /// A second vote for the same claim keeps no former bound.
    SecondVoteLeavesTrace,
    /// The withdrawal of a larger proposal does not restore the former bound.
    TraceOfSmallerToken,
    /// A key is reserved only on a node whose bound is not larger than the token.
    NotReservedAfterAnother,
    /// A restarted node reserves no key while earlier leases may be held.
    ReservedAfterRejoinDelay,
    /// A restarted node does not vote while earlier leases may be held.
    RejoinDelay,
}

impl<const N: usize> Setup<N> {
    /// Makes a setup with two claims at the same time.
    pub(crate) fn contended() -> Self {
        Self {
            claims: 2,
            lasting: 0,
            withdrawing: 0,
            repeating: [false; MOST_CLAIMS],
            repeats_grants: false,
            adopting: 0,
            reserves: false,
            begun: false,
            skew: 1,
            largest: 3,
            restores: 0,
            restarts: 0,
            clocks: Clocks::Wrong,
            quorum: N / 2 + 1,
            without: None,
        }
    }

    /// Makes a setup in which one claim was granted and sends heartbeats, and another claim competes.
    pub(crate) fn begun() -> Self {
        Self { lasting: 1, begun: true, restores: 1, ..Self::contended() }
    }

    pub(crate) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// Returns whether the claim adopts the grant of the first claim.
    pub(crate) fn adopts(&self, claim: usize) -> bool {
        (1..=self.adopting).contains(&claim)
    }

    /// Returns whether the claim can only be granted and end.
    pub(crate) fn only_asks(&self, claim: usize) -> bool {
        claim >= self.lasting && claim >= self.withdrawing && !self.repeating[claim]
    }

    /// Returns the possible orders of the claims' names: claims with the same actions are interchangeable.
    pub(crate) fn orders(&self) -> Vec<[usize; MOST_CLAIMS]> {
        let role = |claim: usize| {
            let may = [self.lasting, self.withdrawing, self.claims];
            let first = claim == 0 && (self.begun || self.adopting > 0);
            (first, self.adopts(claim), self.repeating[claim], may.map(|those| claim < those))
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
