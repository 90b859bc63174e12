//! One state: the nodes, the claims, and the requests between them.

use std::fmt;

use crate::setup::{Clocks, Rule, Setup};

pub(crate) const MOST_CLAIMS: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) struct State<const N: usize> {
    pub(crate) nodes: [Node; N],
    pub(crate) claims: [Claim; MOST_CLAIMS],
    /// How many restarts are left.
    pub(crate) restarts: u8,
    pub(crate) restores: u8,
    /// At least as large as every counter before a restart.
    pub(crate) time: u8,
}

/// The data of a server for one key.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Node {
    /// The claim that holds the key: its name, or zero.
    pub(crate) holder: u8,
    /// The token of the holder.
    pub(crate) held: u8,
    /// The last round of the holder's claim.
    pub(crate) round: u8,
    pub(crate) counter: u8,
    /// The claim of the last known grant: a name, zero, or `ANOTHER`.
    pub(crate) granted: u8,
    /// The last known token of that grant.
    pub(crate) under: u8,
    /// The values of these two before the last vote.
    pub(crate) before: u8,
    pub(crate) before_under: u8,
    pub(crate) last: u8,
    /// The node's time at its restart, if its counter was lost and it has not voted since. The lost counter
    /// was less. Otherwise zero.
    pub(crate) started: u8,
    /// A bit for each claim that may hold a lease from before the restart.
    pub(crate) awaited: u8,
    /// A bit for each claim that may count votes from before the restart.
    pub(crate) counting: u8,
    pub(crate) links: [Link; MOST_CLAIMS],
}

/// The requests between one claim and one node.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Link {
    pub(crate) vote: Vote,
    /// Whether an earlier request for a vote may arrive. Its answer is ignored.
    pub(crate) duplicated: bool,
    /// The token of an earlier write-back that may arrive, or zero.
    pub(crate) stale: u8,
    pub(crate) heartbeat: HeartbeatState,
    /// A bit for each round whose withdrawal may arrive.
    pub(crate) withdrawals: u8,
    pub(crate) freed: Freed,
}

/// The state of a vote. A request that may arrive may do so at any time, or never.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Vote {
    #[default]
    Nothing,
    /// The request may arrive.
    Asked,
    /// The node has counted to this number.
    Counted(u8),
    /// The write-back may arrive.
    Raising,
    /// The node has the token.
    Confirmed,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum HeartbeatState {
    #[default]
    Nothing,
    /// The heartbeat may arrive.
    Sent,
    Extended,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Freed {
    #[default]
    Nothing,
    /// A release may arrive.
    Releasing,
    /// The node remembers the release.
    Released,
}

#[derive(Clone, Copy, Default, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub(crate) struct Claim {
    pub(crate) phase: Phase,
    pub(crate) token: u8,
    /// The largest token that was granted before this claim. Its own must be larger.
    pub(crate) floor: u8,
    pub(crate) may_repeat: bool,
    pub(crate) may_send_heartbeat: bool,
    /// Whether a larger token had been granted when the heartbeat was sent.
    pub(crate) followed: bool,
    /// Whether a node had restarted when the heartbeat was sent.
    pub(crate) renews: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Asking,
    WritingBack,
    Granted,
    /// The claim was granted and has ended.
    Over,
    /// The claim ended without a grant. Only a repeated claim may still be granted.
    Abandoned,
}

/// A claim that need not be distinguished: no later request has its name.
pub(crate) const ANOTHER: u8 = 4;

/// The number of a claim's first round, if it has two.
pub(crate) const EARLIER: u8 = 0;
/// The number of a claim's last round.
pub(crate) const LAST: u8 = 1;
/// Larger than every round.
pub(crate) const BEYOND: u8 = 2;

impl Claim {
    pub(crate) fn round(self) -> u8 {
        if self.may_repeat { EARLIER } else { LAST }
    }

    pub(crate) fn is_asking(self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::WritingBack)
    }

    pub(crate) fn was_granted(self) -> bool {
        matches!(self.phase, Phase::Granted | Phase::Over)
    }

    /// Whether its lessee has a lease or may obtain one.
    pub(crate) fn is_live(self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::WritingBack | Phase::Granted)
    }
}

impl<const N: usize> State<N> {
    /// All initial states.
    pub(crate) fn first_ones(setup: &Setup<N>) -> Vec<Self> {
        let mut first = Self {
            nodes: [Node::default(); N],
            claims: Default::default(),
            restarts: setup.restarts,
            restores: setup.restores,
            time: 0,
        };
        for claim in &mut first.claims[..setup.lasting] {
            claim.may_send_heartbeat = true;
        }
        for claim in &mut first.claims[..setup.withdrawing] {
            claim.may_repeat = setup.repeats;
        }
        let mut skewed = 0;
        if setup.begun {
            skewed = setup.quorum;
            let claim = &mut first.claims[0];
            (claim.phase, claim.token, claim.may_repeat) = (Phase::Granted, 1, false);
            for node in &mut first.nodes[..skewed] {
                *node = Node { holder: 1, held: 1, counter: 1, granted: 1, under: 1, ..*node };
            }
        }
        let mut all = vec![first];
        for place in skewed..N {
            let further = |state: &Self| {
                let state = *state;
                let least = if place == skewed { 0 } else { state.nodes[place - 1].counter };
                (least..=setup.skew).map(move |counter| {
                    let mut state = state;
                    state.nodes[place].counter = counter;
                    state
                })
            };
            all = all.iter().flat_map(further).collect();
        }
        all
    }

    pub(crate) fn count(&self, place: usize, is: impl Fn(&Link) -> bool) -> usize {
        self.nodes.iter().filter(|node| is(&node.links[place])).count()
    }

    pub(crate) fn largest_granted(&self) -> u8 {
        let granted = self.claims.iter().filter(|claim| claim.was_granted());
        granted.map(|claim| claim.token).max().unwrap_or(0)
    }

    pub(crate) fn largest_counted(&self) -> u8 {
        let counters = self.nodes.iter().map(|node| node.counter);
        counters.max().unwrap_or(0).max(self.time)
    }

    /// Clears values that have no effect any more, so that states that differ only in them become equal.
    pub(crate) fn forget(&mut self, setup: &Setup<N>) {
        for (place, claim) in self.claims.iter_mut().enumerate() {
            if !claim.is_asking() && claim.phase != Phase::Abandoned {
                claim.floor = 0;
            }
            if claim.phase == Phase::Abandoned && !claim.may_repeat {
                claim.floor = 0;
            }
            let mut raising = false;
            for node in &mut self.nodes {
                if !claim.is_live() {
                    node.awaited &= !bit(place);
                }
                if claim.phase != Phase::Asking || self.restores == 0 {
                    node.counting &= !bit(place);
                }
                if !setup.leaves_out(Rule::WithdrawalOfItsRound) {
                    node.forget_withdrawals(place, *claim);
                }
                let link = &mut node.links[place];
                if !claim.is_asking() && matches!(link.vote, Vote::Counted(_) | Vote::Confirmed) {
                    link.vote = Vote::Nothing;
                }
                if setup.clocks == Clocks::Wrong
                    && !claim.followed
                    && link.heartbeat == HeartbeatState::Extended
                {
                    link.heartbeat = HeartbeatState::Nothing;
                }
                raising |= link.vote == Vote::Raising;
            }
            if claim.phase == Phase::Abandoned && !raising {
                claim.token = 0;
            }
        }
        for node in &mut self.nodes {
            if node.holder == 0 {
                node.held = 0;
            }
            if !node.may_be_withdrawn(&self.claims) {
                node.round = 0;
                if !setup.leaves_out(Rule::BeforeTheLastVote) {
                    (node.before, node.before_under) = (0, 0);
                }
            }
            // No later request has the name of a claim that is not repeated, restored or released.
            let repeats = if setup.repeats { setup.withdrawing } else { 0 };
            if usize::from(node.granted) > setup.lasting.max(repeats) {
                node.granted = if setup.lasting > 0 { ANOTHER } else { 0 };
            }
            if node.granted == 0 {
                node.under = 0;
            }
            if node.before == 0 {
                node.before_under = 0;
            }
        }
        if self.restarts == 0 && self.nodes.iter().all(|node| node.started == 0) {
            self.time = 0;
        }
    }
}

impl Node {
    /// Clears the withdrawals that can have no effect. Later requests belong to later rounds.
    fn forget_withdrawals(&mut self, place: usize, claim: Claim) {
        let held = self.holder == name(place);
        let link = &mut self.links[place];
        for round in [EARLIER, LAST] {
            let finds = held && self.round <= round
                || link.duplicated
                || link.vote == Vote::Asked && claim.round() <= round;
            if !finds {
                link.withdrawals &= !(1 << round);
            }
        }
    }

    /// Whether a withdrawal of the holder's vote may arrive.
    fn may_be_withdrawn(&self, claims: &[Claim]) -> bool {
        let Some(place) = usize::from(self.holder).checked_sub(1) else { return false };
        let claim = claims[place];
        let may_be_sent = claim.is_asking() || claim.may_repeat;
        may_be_sent || self.links[place].withdrawals != 0
    }
}

/// The name of a claim, as the nodes know it.
pub(crate) fn name(place: usize) -> u8 {
    u8::try_from(place + 1).unwrap()
}

pub(crate) fn bit(place: usize) -> u8 {
    1 << place
}

/// Each node's holder and counter: `A3` is held by A, `-2` is free.
impl<const N: usize> fmt::Display for State<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            let holder = ["-", "A", "B", "C"][usize::from(node.holder)];
            write!(f, " {holder}{}", node.counter)?;
        }
        Ok(())
    }
}
