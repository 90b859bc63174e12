//! The scenarios: the events, and the steps of each event.

use crate::fleet::{Fleet, Millis};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) leases: usize,
    pub(crate) workers: usize,
    pub(crate) event: Event,
    pub(crate) span: Span,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// The time from the start of the run to the event.
    pub(crate) settles: Millis,
    /// The time from the last step to the end of the run.
    pub(crate) watched: Millis,
    /// The last part of `watched`, in which the fleet is at rest and its costs are measured.
    pub(crate) rests: Millis,
}

impl Span {
    /// Models need long times, because some rules balance slowly.
    pub(crate) const LONG: Self = Self { settles: 900_000, watched: 1_800_000, rests: 600_000 };
    /// Real workers come to rest within these times.
    pub(crate) const SHORT: Self = Self { settles: 20_000, watched: 60_000, rests: 20_000 };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    ColdStart,
    OneJoins,
    FleetDoubles,
    /// A worker that is not the leader crashes.
    OneCrashes,
    /// The leader crashes, or some worker if the rule has no leader.
    LeaderCrashes,
    /// All workers are replaced in turn. Half a minute after a new worker starts, its old worker stops.
    RollingDeploy,
    /// One worker pauses for long enough to be noticed under each rule. A leader of KCL 3 notices after a
    /// minute without a report.
    OnePauses,
    /// One worker cannot reach the store for as long as in `OnePauses`.
    OneIsCutOff,
    /// The store rejects one in ten requests while a worker joins. The models' store rejects no
    /// request.
    ThrottledJoin,
    /// Half of the clocks are fast by 0.5 %, and half are slow. The clocks of the models are exact.
    SkewedJoin,
    /// Each shard is split. Half a minute later, all shards are merged in pairs.
    ReshardStorm,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
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
    pub(crate) fn begins(&self) -> Millis {
        if self.event == Event::ColdStart { 0 } else { self.span.settles }
    }

    pub(crate) fn is_over(&self) -> Millis {
        let end = |(when, step): (Millis, Step)| match step {
            Step::Pause(_, length) | Step::Cut(_, length) => when + length,
            _ => when,
        };
        self.steps(None).into_iter().map(end).max().unwrap()
    }

    pub(crate) fn ends(&self) -> Millis {
        self.is_over() + self.span.watched
    }

    pub(crate) fn steps(&self, leader: Option<usize>) -> Vec<(Millis, Step)> {
        let (begins, workers) = (self.begins(), self.workers);
        let join = |worker| (begins, Step::Join(worker));
        let follower = (0..workers).find(|worker| Some(*worker) != leader).unwrap();
        match self.event {
            Event::ColdStart => (0..workers).map(join).collect(),
            Event::OneJoins | Event::ThrottledJoin | Event::SkewedJoin => vec![join(workers)],
            Event::FleetDoubles => (workers..2 * workers).map(join).collect(),
            Event::OneCrashes => vec![(begins, Step::Crash(follower))],
            Event::LeaderCrashes => vec![(begins, Step::Crash(leader.unwrap_or(0)))],
            Event::OnePauses => vec![(begins, Step::Pause(follower, TWO_MINUTES))],
            Event::OneIsCutOff => vec![(begins, Step::Cut(follower, TWO_MINUTES))],
            Event::ReshardStorm => {
                vec![(begins, Step::SplitAll), (begins + OVERLAP, Step::MergeAll)]
            }
            Event::RollingDeploy => (0..workers)
                .flat_map(|old| {
                    let when = begins + old as Millis * BETWEEN_REPLACEMENTS;
                    [(when, Step::Join(workers + old)), (when + OVERLAP, Step::Leave(old))]
                })
                .collect(),
        }
    }
}

impl Step {
    pub(crate) fn apply(self, fleet: &mut dyn Fleet, now: Millis) {
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
