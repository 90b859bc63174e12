//! What happens to a fleet.

use crate::fleet::{Fleet, Millis};

/// A fleet, and what happens to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) leases: usize,
    pub(crate) workers: usize,
    pub(crate) event: Event,
    pub(crate) span: Span,
}

/// How long a fleet is watched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// From its start to what happens to it.
    pub(crate) settles: Millis,
    /// From the last that happens to the end.
    pub(crate) watched: Millis,
    /// Of that, what comes last: it is at rest, and its costs are measured.
    pub(crate) rests: Millis,
}

impl Span {
    /// For models, of which some need long.
    pub(crate) const LONG: Self = Self { settles: 900_000, watched: 1_800_000, rests: 600_000 };
    /// For workers: nothing happens to them any more after that.
    pub(crate) const SHORT: Self = Self { settles: 20_000, watched: 60_000, rests: 20_000 };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// All workers start together, where nobody ever read.
    ColdStart,
    OneJoins,
    FleetDoubles,
    /// Not the leader.
    OneCrashes,
    /// Where there is no leader, some worker.
    LeaderCrashes,
    /// One worker after the other is replaced: the new one first, and the old one is asked to go
    /// half a minute later.
    RollingDeploy,
    /// For long enough that the others of each rule learn of it: a leader of version 3 gives leases
    /// to who has not reported for a minute.
    OnePauses,
    /// One cannot reach the store for as long.
    OneIsCutOff,
    /// The store refuses one in ten requests, while one joins. The models' refuses none.
    ThrottledJoin,
    /// Half of the clocks are fast by 0.5 %, half slow, while one joins. The models' are right.
    SkewedJoin,
    /// Each shard is split, and half a minute later all are merged in pairs.
    ReshardStorm,
}

/// Something that is done to a fleet, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deed {
    Join(usize),
    Crash(usize),
    Leave(usize),
    Pause(usize, Millis),
    Cut(usize, Millis),
    SplitAll,
    MergeAll,
}

impl Event {
    pub(crate) const ALL: [Self; 11] = [
        Self::ColdStart,
        Self::OneJoins,
        Self::FleetDoubles,
        Self::OneCrashes,
        Self::LeaderCrashes,
        Self::RollingDeploy,
        Self::OnePauses,
        Self::OneIsCutOff,
        Self::ThrottledJoin,
        Self::SkewedJoin,
        Self::ReshardStorm,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ColdStart => "cold start",
            Self::OneJoins => "one joins",
            Self::FleetDoubles => "fleet doubles",
            Self::OneCrashes => "one crashes",
            Self::LeaderCrashes => "leader crashes",
            Self::RollingDeploy => "rolling deploy",
            Self::OnePauses => "one pauses 120 s",
            Self::OneIsCutOff => "one is cut from the store for 120 s",
            Self::ThrottledJoin => "one joins, 10 % of requests are throttled (not the models')",
            Self::SkewedJoin => "one joins, clocks at +-0.5 % (not the models')",
            Self::ReshardStorm => "all are split, and merged 30 s later",
        }
    }
}

impl Scenario {
    /// When it happens. Before, the fleet has time to settle.
    pub(crate) fn begins(&self) -> Millis {
        if self.event == Event::ColdStart { 0 } else { self.span.settles }
    }

    /// When the last of it is over.
    pub(crate) fn is_over(&self) -> Millis {
        let end = |(when, deed): (Millis, Deed)| match deed {
            Deed::Pause(_, length) | Deed::Cut(_, length) => when + length,
            _ => when,
        };
        self.deeds(None).into_iter().map(end).max().unwrap()
    }

    /// When watching ends.
    pub(crate) fn ends(&self) -> Millis {
        self.is_over() + self.span.watched
    }

    /// What is done to a fleet led by `leader`.
    pub(crate) fn deeds(&self, leader: Option<usize>) -> Vec<(Millis, Deed)> {
        let (begins, workers) = (self.begins(), self.workers);
        let join = |worker| (begins, Deed::Join(worker));
        let follower = (0..workers).find(|worker| Some(*worker) != leader).unwrap();
        match self.event {
            Event::ColdStart => (0..workers).map(join).collect(),
            Event::OneJoins | Event::ThrottledJoin | Event::SkewedJoin => vec![join(workers)],
            Event::FleetDoubles => (workers..2 * workers).map(join).collect(),
            Event::OneCrashes => vec![(begins, Deed::Crash(follower))],
            Event::LeaderCrashes => vec![(begins, Deed::Crash(leader.unwrap_or(0)))],
            Event::OnePauses => vec![(begins, Deed::Pause(follower, TWO_MINUTES))],
            Event::OneIsCutOff => vec![(begins, Deed::Cut(follower, TWO_MINUTES))],
            Event::ReshardStorm => {
                vec![(begins, Deed::SplitAll), (begins + OVERLAP, Deed::MergeAll)]
            }
            Event::RollingDeploy => (0..workers)
                .flat_map(|old| {
                    let when = begins + old as Millis * BETWEEN_REPLACEMENTS;
                    [(when, Deed::Join(workers + old)), (when + OVERLAP, Deed::Leave(old))]
                })
                .collect(),
        }
    }
}

impl Deed {
    pub(crate) fn is_done_to(self, fleet: &mut dyn Fleet, now: Millis) {
        match self {
            Self::Join(worker) => fleet.join(now, worker),
            Self::Crash(worker) => fleet.crash(now, worker),
            Self::Leave(worker) => fleet.leave(now, worker),
            Self::Pause(worker, length) => fleet.pause(now, worker, length),
            Self::Cut(worker, length) => fleet.cut(now, worker, length),
            Self::SplitAll => fleet.split_all(now),
            Self::MergeAll => fleet.merge_all(now),
        }
    }
}

const BETWEEN_REPLACEMENTS: Millis = 60_000;

const TWO_MINUTES: Millis = 120_000;

const OVERLAP: Millis = 30_000;
