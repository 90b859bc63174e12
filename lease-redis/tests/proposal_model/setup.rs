//! The parameters of a search.

use crate::state::MOST_CLAIMS;

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a search combines any of them")]
pub(crate) struct Setup<const N: usize> {
    pub(crate) claims: usize,
    /// The first claims that send heartbeats, are restored and release. Other claims end when they
    /// are granted.
    pub(crate) lasting: usize,
    /// The first claims that may withdraw before they are granted.
    pub(crate) withdrawing: usize,
    /// These claims may be repeated once, with a larger proposal.
    pub(crate) repeating: [bool; MOST_CLAIMS],
    /// These claims may also be repeated after they were granted or released.
    pub(crate) repeats_grants: bool,
    /// The claims after the first claim that adopt its grant.
    pub(crate) adopting: usize,
    pub(crate) reserves: bool,
    /// Claims that are released ask a majority first. The search covers all majorities.
    pub(crate) majority_first: bool,
    /// A holder whose first heartbeat extends the lease on too few nodes sends a second one.
    pub(crate) spreads: bool,
    /// Whether a bare majority granted the first claim before the search begins.
    pub(crate) begun: bool,
    /// The search covers all sets of counters up to this counter, and of absent counters.
    pub(crate) skew: u8,
    pub(crate) largest: u8,
    /// The number of restores on all nodes together.
    pub(crate) restores: u8,
    pub(crate) restarts: u8,
    pub(crate) clocks: Clocks,
    pub(crate) quorum: usize,
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// At any instant, so a promise that the search finds kept depends on no clock.
    Wrong,
    /// Only after the holder has stopped relying on the lease. Until then, a restarted node does
    /// not vote. No grant is restored on the node while earlier votes may be counted.
    Right,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    LargerThanTheCounter,
    /// A node on which the claim already holds the key also accepts only a larger proposal.
    LargerThanTheCounterForTheHolder,
    /// A node that lost its counter accepts only proposals that are larger than the lost counter.
    TimeAfterRestart,
    VotesForOneProposal,
    LargerProposal,
    /// A withdrawal affects only votes for its own proposal or for smaller proposals.
    WithdrawalOfItsProposal,
    /// A heartbeat raises the token of a vote from an earlier round.
    HeartbeatRaisesToken,
    NotExtendedWithLargerToken,
    /// A grant is restored only on a node whose counter is not larger than its token.
    NotRestoredAfterAnother,
    NotRestoredOverAHolder,
    RestoreWritesNoCounter,
    RestoreDoesNotCount,
    /// Claims may count votes from before a restart for one time-out.
    RestoredAfterVotes,
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
    /// A repeated claim names its earlier proposal to the nodes only if this proposal was not granted.
    NamesNoGrantedProposal,
    /// The withdrawal of a larger proposal does not restore the former bound.
    TraceOfSmallerToken,
    /// A key is reserved only on a node whose bound is not larger than the token.
    NotReservedAfterAnother,
    /// A restarted node reserves no key while earlier leases may be held.
    ReservedAfterRejoinDelay,
    /// A restarted node does not vote while earlier leases may be held.
    RejoinDelay,
    /// If a claim asks the other nodes, its release also goes to them.
    ReleasedWhereAsked,
    /// After a heartbeat, which may restore the grant on any node, the release goes to all nodes.
    ReleasedWhereRestored,
    /// A repeated claim asks all nodes, and its release goes to all nodes.
    RepeatedEverywhere,
    /// The second heartbeat counts only its own answers.
    SpreadCountsAnew,
}

impl<const N: usize> Setup<N> {
    pub(crate) fn contended() -> Self {
        Self {
            claims: 2,
            lasting: 0,
            withdrawing: 0,
            repeating: [false; MOST_CLAIMS],
            repeats_grants: false,
            adopting: 0,
            reserves: false,
            majority_first: false,
            spreads: false,
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

    /// One claim was granted and sends heartbeats, and another claim competes.
    pub(crate) fn begun() -> Self {
        Self { lasting: 1, begun: true, restores: 1, ..Self::contended() }
    }

    pub(crate) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    pub(crate) fn adopts(&self, claim: usize) -> bool {
        (1..=self.adopting).contains(&claim)
    }

    pub(crate) fn only_asks(&self, claim: usize) -> bool {
        claim >= self.lasting && claim >= self.withdrawing && !self.repeating[claim]
    }

    /// Claims with the same actions are interchangeable.
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
