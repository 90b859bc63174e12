//! One state: the nodes, the claims, and the requests between them.

use std::fmt;

use crate::setup::{Clocks, Setup};

pub(crate) const MOST_CLAIMS: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) struct State<const N: usize> {
    pub(crate) nodes: [Node; N],
    pub(crate) claims: [Claim; MOST_CLAIMS],
    pub(crate) restarts: u8,
    pub(crate) restores: u8,
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Node {
    /// The name of a claim, `RESERVED`, or zero.
    pub(crate) holder: u8,
    pub(crate) held: u8,
    /// A node without a counter has here its time, at least the counter that it lost.
    pub(crate) counter: u8,
    /// The largest accepted token that was not withdrawn. Zero if the node has no counter.
    pub(crate) bound: u8,
    /// The bound before the vote that the lock holds.
    pub(crate) former: u8,
    pub(crate) absent: bool,
    /// A bit for each claim that may hold a lease from before the restart.
    pub(crate) awaited: u8,
    /// A bit for each claim that may count votes from before the restart.
    pub(crate) counting: u8,
    pub(crate) links: [Link; MOST_CLAIMS],
}

/// A request that may arrive arrives at any time, or never.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Link {
    /// Whether the node is one of the first nodes of the claim. Unused if other nodes were asked, too.
    pub(crate) first: bool,
    pub(crate) vote: Vote,
    /// The answer to the request with the earlier proposal is ignored.
    pub(crate) duplicated: bool,
    pub(crate) heartbeat: HeartbeatState,
    /// A bit for each round whose withdrawal may arrive.
    pub(crate) withdrawals: u8,
    pub(crate) freed: Freed,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Vote {
    #[default]
    Nothing,
    Asked,
    Granted,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum HeartbeatState {
    #[default]
    Nothing,
    Sent,
    Extended,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Freed {
    #[default]
    Nothing,
    Releasing,
    Released,
    Reserved,
}

#[derive(Clone, Copy, Default, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub(crate) struct Claim {
    pub(crate) phase: Phase,
    pub(crate) token: u8,
    /// Zero if the claim has one proposal.
    pub(crate) earlier: u8,
    pub(crate) earlier_granted: bool,
    /// The largest token that was granted before the last proposal. The claim's token must be
    /// larger.
    pub(crate) floor: u8,
    pub(crate) may_repeat: bool,
    pub(crate) may_send_heartbeat: bool,
    /// Whether the heartbeat carries the earlier token.
    pub(crate) beat_earlier: bool,
    /// Whether a larger token was granted before the heartbeat was sent.
    pub(crate) followed: bool,
    /// Whether a node restarted before the heartbeat was sent.
    pub(crate) renews: bool,
    pub(crate) may_release: bool,
    pub(crate) release_earlier: bool,
    /// Whether no request went to other nodes than the first ones.
    pub(crate) only_first: bool,
    /// Whether the release went only to the first nodes.
    pub(crate) released_first: bool,
    pub(crate) may_send_again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Asking,
    Granted,
    Over,
    Reserving,
    /// Only a repetition of the claim may still be granted.
    Abandoned,
}

pub(crate) const RESERVED: u8 = 4;

pub(crate) const EARLIER: u8 = 0;
pub(crate) const LAST: u8 = 1;

impl Claim {
    pub(crate) fn was_granted(self) -> bool {
        matches!(self.phase, Phase::Granted | Phase::Over | Phase::Reserving)
    }

    pub(crate) fn is_live(self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::Granted | Phase::Reserving)
    }

    pub(crate) fn granted_tokens(self) -> impl Iterator<Item = u8> {
        let last = self.was_granted().then_some(self.token);
        last.into_iter().chain(self.earlier_granted.then_some(self.earlier))
    }

    pub(crate) fn beat_token(self) -> u8 {
        if self.beat_earlier { self.earlier } else { self.token }
    }

    pub(crate) fn release_token(self) -> u8 {
        if self.release_earlier { self.earlier } else { self.token }
    }
}

impl<const N: usize> State<N> {
    pub(crate) fn first_ones(setup: &Setup<N>) -> Vec<Self> {
        let mut first = Self {
            nodes: [Node { absent: true, ..Node::default() }; N],
            claims: Default::default(),
            restarts: setup.restarts,
            restores: setup.restores,
        };
        for claim in &mut first.claims[..setup.lasting] {
            (claim.may_send_heartbeat, claim.may_release) = (true, true);
            claim.may_send_again = setup.spreads;
        }
        for (claim, repeating) in first.claims.iter_mut().zip(setup.repeating) {
            claim.may_repeat = repeating;
        }
        let mut skewed = 0;
        if setup.begun {
            skewed = setup.quorum;
            let claim = &mut first.claims[0];
            (claim.phase, claim.token) = (Phase::Granted, 1);
            claim.may_repeat &= setup.repeats_grants;
            claim.only_first = setup.majority_first;
            for node in &mut first.nodes[..skewed] {
                node.links[0].first = setup.majority_first;
                (node.holder, node.held, node.absent) = (1, 1, false);
                (node.counter, node.bound, node.former) = (1, 1, 1);
            }
        }
        let mut all = vec![first];
        for place in skewed..N {
            all = all.iter().flat_map(|state| with_counters(setup, *state, place)).collect();
        }
        for state in &mut all {
            state.forget(setup);
        }
        all
    }

    pub(crate) fn count(&self, place: usize, is: impl Fn(&Link) -> bool) -> usize {
        self.nodes.iter().filter(|node| is(&node.links[place])).count()
    }

    pub(crate) fn largest_granted(&self) -> u8 {
        self.claims.iter().flat_map(|claim| claim.granted_tokens()).max().unwrap_or(0)
    }

    /// Clears values that have no effect any more, so that fewer states differ.
    pub(crate) fn forget(&mut self, setup: &Setup<N>) {
        for place in 0..MOST_CLAIMS {
            self.forget_requests(setup, place);
            self.forget_claim(setup, place);
        }
        let bounds = self.restores > 0 || setup.reserves;
        for node in &mut self.nodes {
            if node.holder == 0 || node.holder == RESERVED {
                node.held = 0;
            }
            if !bounds {
                (node.bound, node.former) = (0, 0);
            } else if node.holder == 0 && setup.without.is_none() {
                node.former = 0;
            }
            // With all rules, only the bound shows whether a node has a counter.
            node.absent &= setup.without.is_some();
        }
    }

    fn forget_claim(&mut self, setup: &Setup<N>, place: usize) {
        let is = |test: fn(&Link) -> bool| self.nodes.iter().any(|node| test(&node.links[place]));
        let duplicated = is(|link| link.duplicated || link.withdrawals & 1 << EARLIER != 0);
        let sent = is(|link| link.heartbeat == HeartbeatState::Sent);
        let beating = is(|link| link.heartbeat != HeartbeatState::Nothing);
        let releasing = is(|link| matches!(link.freed, Freed::Releasing | Freed::Released));
        let asked = is(|link| link.vote == Vote::Asked || link.withdrawals & 1 << LAST != 0);
        let held = self.nodes.iter().any(|node| node.holder == name(place));
        let earlier = self.claims[place].earlier;
        let split = earlier > 0
            && is(|link| link.vote == Vote::Asked)
            && self.nodes.iter().any(|node| node.holder == name(place) && node.held == earlier);
        let claim = &mut self.claims[place];
        if claim.phase != Phase::Asking {
            claim.floor = 0;
        }
        if !sent {
            claim.renews = false;
        }
        if !beating {
            (claim.beat_earlier, claim.followed) = (false, false);
        }
        claim.release_earlier &= releasing;
        if matches!(claim.phase, Phase::Over | Phase::Abandoned) && !claim.may_repeat {
            (claim.may_send_heartbeat, claim.may_release) = (false, false);
            claim.may_send_again = false;
        }
        let only_first = claim.only_first || claim.released_first;
        if claim.phase == Phase::Abandoned && !claim.may_repeat && !asked && !held && !releasing {
            claim.token = 0;
        }
        let late = claim.beat_earlier || claim.release_earlier || claim.earlier_granted;
        if !duplicated && !late && !split {
            claim.earlier = 0;
        }
        if !only_first {
            for node in &mut self.nodes {
                node.links[place].first = false;
            }
        }
        let claim = &self.claims[place];
        let counts = claim.followed || claim.may_send_again;
        if (setup.clocks == Clocks::Wrong || !claim.is_live()) && !counts {
            for node in &mut self.nodes {
                let link = &mut node.links[place];
                if link.heartbeat == HeartbeatState::Extended {
                    link.heartbeat = HeartbeatState::Nothing;
                }
            }
        }
    }

    fn forget_requests(&mut self, setup: &Setup<N>, place: usize) {
        let (claim, name) = (self.claims[place], name(place));
        for node in &mut self.nodes {
            if !claim.is_live() {
                node.awaited &= !bit(place);
            }
            if claim.phase != Phase::Asking || self.restores == 0 && !setup.reserves {
                node.counting &= !bit(place);
            }
            let held = node.holder == name;
            let counter = node.counter;
            let link = &mut node.links[place];
            if claim.phase != Phase::Asking && link.vote == Vote::Granted {
                link.vote = Vote::Nothing;
            }
            if claim.phase != Phase::Reserving && link.freed == Freed::Reserved {
                link.freed = Freed::Nothing;
            }
            if setup.without.is_some() {
                continue;
            }
            // Counters only grow, so the node will refuse smaller proposals.
            if link.vote == Vote::Asked && claim.token <= counter {
                link.vote = Vote::Nothing;
            }
            link.duplicated &= claim.earlier > counter;
            if link.freed == Freed::Released && node.bound > claim.release_token() {
                link.freed = Freed::Nothing;
            }
            let earlier = held && node.held <= claim.earlier || link.duplicated;
            if !earlier && !claim.earlier_granted {
                link.withdrawals &= !(1 << EARLIER);
            }
            if !held && !link.duplicated && link.vote != Vote::Asked && !claim.earlier_granted {
                link.withdrawals &= !(1 << LAST);
            }
        }
    }
}

/// Nodes are interchangeable, so their counters ascend.
fn with_counters<const N: usize>(
    setup: &Setup<N>,
    state: State<N>,
    place: usize,
) -> impl Iterator<Item = State<N>> {
    let first = if setup.begun { setup.quorum } else { 0 };
    let least = if place == first { 0 } else { state.nodes[place - 1].counter };
    (least..=setup.skew).flat_map(move |counter| {
        [false, true].map(|absent| {
            let mut state = state;
            let bound = if absent { 0 } else { counter };
            let node = &mut state.nodes[place];
            (node.counter, node.bound, node.former, node.absent) = (counter, bound, bound, absent);
            state
        })
    })
}

pub(crate) fn name(place: usize) -> u8 {
    u8::try_from(place + 1).unwrap()
}

pub(crate) fn bit(place: usize) -> u8 {
    1 << place
}

/// A holds `A3/3`, `-/2` is free, and `-/~2` has no counter and the time 2.
impl<const N: usize> fmt::Display for State<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            let holder = ["-", "A", "B", "C", "R"][usize::from(node.holder)];
            let held = if node.held > 0 { node.held.to_string() } else { String::new() };
            let sign = if node.absent { "~" } else { "" };
            write!(f, "  {holder}{held}/{sign}{}", node.counter)?;
        }
        Ok(())
    }
}
