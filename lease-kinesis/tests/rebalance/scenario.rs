//! What happens to a fleet.

use crate::fleet::{Fleet, Millis};

/// A fleet, and what happens to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) leases: usize,
    pub(crate) workers: usize,
    pub(crate) event: Event,
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
    /// For twice the time after which a worker counts as gone.
    OnePauses,
}

/// Something that is done to a fleet, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deed {
    Join(usize),
    Crash(usize),
    Leave(usize),
    Pause(usize, Millis),
}

impl Event {
    pub(crate) const ALL: [Self; 7] = [
        Self::ColdStart,
        Self::OneJoins,
        Self::FleetDoubles,
        Self::OneCrashes,
        Self::LeaderCrashes,
        Self::RollingDeploy,
        Self::OnePauses,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ColdStart => "cold start",
            Self::OneJoins => "one joins",
            Self::FleetDoubles => "fleet doubles",
            Self::OneCrashes => "one crashes",
            Self::LeaderCrashes => "leader crashes",
            Self::RollingDeploy => "rolling deploy",
            Self::OnePauses => "one pauses 20 s",
        }
    }
}

impl Scenario {
    /// When it happens. Before, the fleet has time to settle.
    pub(crate) fn begins(&self) -> Millis {
        if self.event == Event::ColdStart { 0 } else { SETTLED }
    }

    /// When watching ends: half an hour after it has happened.
    pub(crate) fn ends(&self) -> Millis {
        let deeds = self.deeds(None);
        deeds.last().map_or(0, |(when, _)| *when) + HALF_AN_HOUR
    }

    /// What is done to a fleet led by `leader`.
    pub(crate) fn deeds(&self, leader: Option<usize>) -> Vec<(Millis, Deed)> {
        let (begins, workers) = (self.begins(), self.workers);
        let join = |worker| (begins, Deed::Join(worker));
        let follower = (0..workers).find(|worker| Some(*worker) != leader).unwrap();
        match self.event {
            Event::ColdStart => (0..workers).map(join).collect(),
            Event::OneJoins => vec![join(workers)],
            Event::FleetDoubles => (workers..2 * workers).map(join).collect(),
            Event::OneCrashes => vec![(begins, Deed::Crash(follower))],
            Event::LeaderCrashes => vec![(begins, Deed::Crash(leader.unwrap_or(0)))],
            Event::OnePauses => vec![(begins, Deed::Pause(follower, 20_000))],
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
        }
    }
}

/// From the start of a fleet to what happens to it.
pub(crate) const SETTLED: Millis = 900_000;

const HALF_AN_HOUR: Millis = 1_800_000;

const BETWEEN_REPLACEMENTS: Millis = 60_000;

const OVERLAP: Millis = 30_000;
