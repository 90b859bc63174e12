//! Watches a fleet while something happens to it.

use std::collections::{BTreeMap, BTreeSet};

use crate::fleet::{Costs, Fleet, Millis, Readers, Seen};
use crate::scenario::{Deed, Event, Scenario};

/// What came of one run.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// From the first deed until each lease was read by one, and no worker read two more than another; in
    /// a deployment and a storm, from the last.
    pub(crate) balanced_after: Option<Millis>,
    pub(crate) moves: usize,
    /// What no rule can do with fewer, that keeps the fleet balanced.
    pub(crate) fewest_moves: usize,
    /// Lease-milliseconds that nobody read.
    pub(crate) idle: Millis,
    /// Lease-milliseconds that a second worker read too.
    pub(crate) overlap: Millis,
    /// The difference between who reads most and who reads least, in the end.
    pub(crate) spread: usize,
    /// Of the store, for each second of rest.
    pub(crate) reads: f64,
    pub(crate) writes: f64,
    pub(crate) seen: Option<Seen>,
}

/// Runs `scenario` with `fleet`, of which nothing has happened yet.
pub(crate) fn run(scenario: &Scenario, fleet: &mut dyn Fleet) -> Measured {
    let mut live = BTreeSet::new();
    if scenario.event != Event::ColdStart {
        for worker in 0..scenario.workers {
            Deed::Join(worker).is_done_to(fleet, 0);
            live.insert(worker);
        }
        run_until(scenario.begins(), fleet, |_, _, _| ());
    }

    let deeds = scenario.deeds(fleet.leader());
    let (begins, ends) = (scenario.begins(), scenario.ends());
    let (last_deed, is_over) = (deeds.last().unwrap().0, scenario.is_over());
    let rest = ends - scenario.span.rests;
    let seen = fleet.seen();
    let fewest_moves = fewest_moves(scenario, &deeds, &live, fleet.who_reads());
    let moves = fleet.who_reads().moves();
    // At its last deed, a storm has not reached anybody yet.
    let has_to_stay = scenario.event == Event::ReshardStorm;
    let mut watch = Watch { has_to_stay, ..Watch::default() };
    let mut deeds = deeds.into_iter().peekable();
    let mut costs = (0, Costs::default());
    let mut now = begins;
    while now < ends {
        while let Some((when, deed)) = deeds.next_if(|(when, _)| *when <= now) {
            deed.is_done_to(fleet, when);
            match deed {
                Deed::Join(worker) => _ = live.insert(worker),
                Deed::Crash(worker) | Deed::Leave(worker) => _ = live.remove(&worker),
                _ => (),
            }
            watch.look_again();
        }
        let next = deeds.peek().map_or(ends, |(when, _)| *when);
        let next = if now < rest { next.min(rest) } else { next };
        run_until(next, fleet, |from, until, readers| {
            watch.pass(from.max(begins), until, is_over, readers, &live);
        });
        now = next;
        if now == rest {
            costs = (now, fleet.costs());
        }
    }
    let (rested, before) = costs;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let a_second = |count: u64| count as f64 * 1000.0 / (ends - rested) as f64;
    Measured {
        balanced_after: watch.balanced.map(|when| match scenario.event {
            Event::RollingDeploy | Event::ReshardStorm => when.saturating_sub(last_deed),
            _ => when - begins,
        }),
        moves: fleet.who_reads().moves() - moves,
        fewest_moves,
        idle: watch.idle,
        overlap: watch.overlap,
        spread: spread(fleet.who_reads(), &live),
        reads: a_second(fleet.costs().reads - before.reads),
        writes: a_second(fleet.costs().writes - before.writes),
        seen: fleet.seen().zip(seen).map(|(seen, before)| since(&seen, &before)),
    }
}

/// What was seen later than `before`.
fn since(seen: &Seen, before: &Seen) -> Seen {
    Seen {
        idle: seen.idle[before.idle.len()..].to_vec(),
        first_records: seen.first_records[before.first_records.len()..].to_vec(),
        replayed: seen.replayed - before.replayed,
        failed_claims: seen.failed_claims - before.failed_claims,
        ..seen.clone()
    }
}

/// Runs `fleet` until `end`, and has every stretch of time watched in which nothing changed.
fn run_until(end: Millis, fleet: &mut dyn Fleet, mut watch: impl FnMut(Millis, Millis, &Readers)) {
    let mut now = fleet.next().unwrap_or(end).min(end);
    watch(0, now, fleet.who_reads());
    while now < end {
        fleet.step(now);
        let next = fleet.next().unwrap_or(end).min(end);
        watch(now, next, fleet.who_reads());
        now = next;
    }
}

#[derive(Default)]
struct Watch {
    /// Up to when it has watched.
    until: Millis,
    seen: Option<u64>,
    nobody: u64,
    too_many: u64,
    is_balanced: bool,
    has_to_stay: bool,
    balanced: Option<Millis>,
    idle: Millis,
    overlap: Millis,
}

impl Watch {
    /// It changed who should be there.
    fn look_again(&mut self) {
        self.seen = None;
    }

    fn pass(
        &mut self,
        from: Millis,
        until: Millis,
        is_over: Millis,
        readers: &Readers,
        live: &BTreeSet<usize>,
    ) {
        let from = from.max(self.until);
        if until <= from {
            return;
        }
        if self.seen != Some(readers.changes()) {
            self.seen = Some(readers.changes());
            let counts = readers.counts();
            self.nobody = counts.clone().filter(|count| *count == 0).count() as u64;
            self.too_many = counts.map(|count| count.saturating_sub(1)).sum();
            let by_one_each = self.nobody == 0 && self.too_many == 0;
            self.is_balanced = by_one_each && spread(readers, live) <= 1;
        }
        if self.has_to_stay && !self.is_balanced {
            self.balanced = None;
        }
        if self.is_balanced && self.balanced.is_none() && from >= is_over {
            self.balanced = Some(from);
        }
        self.idle += self.nobody * (until - from);
        self.overlap += self.too_many * (until - from);
        self.until = until;
    }
}

fn spread(readers: &Readers, live: &BTreeSet<usize>) -> usize {
    let mut counts: BTreeMap<_, _> = live.iter().map(|worker| (*worker, 0_usize)).collect();
    for worker in readers.all().iter().flatten() {
        counts.entry(*worker).and_modify(|count| *count += 1);
    }
    let most = counts.values().max().copied().unwrap_or(0);
    most - counts.values().min().copied().unwrap_or(0)
}

/// Leases less those that can stay: each worker that stays keeps up to its share, the larger shares
/// being those of the workers that have most (`plan`'s own proof). In a deployment each lease moves
/// once: all that have it are replaced. What a worker loses while it is away, it gets back.
fn fewest_moves(
    scenario: &Scenario,
    deeds: &[(Millis, Deed)],
    live: &BTreeSet<usize>,
    readers: &Readers,
) -> usize {
    if scenario.event == Event::ReshardStorm {
        return 2 * scenario.leases + scenario.leases;
    }
    let mut has: BTreeMap<_, usize> = live.iter().map(|worker| (*worker, 0)).collect();
    for worker in readers.all().iter().flatten() {
        *has.entry(*worker).or_default() += 1;
    }
    let mut away = 0;
    for (_, deed) in deeds {
        match deed {
            Deed::Join(worker) => _ = has.insert(*worker, 0),
            Deed::Crash(worker) | Deed::Leave(worker) => _ = has.remove(worker),
            Deed::Pause(worker, _) | Deed::Cut(worker, _) => {
                // The larger shares are then the others'.
                away += has[worker] + scenario.leases / has.len();
            }
            Deed::SplitAll | Deed::MergeAll => (),
        }
    }
    let mut has: Vec<_> = has.into_values().collect();
    has.sort_unstable_by(|one, other| other.cmp(one));
    let (share, more) = (scenario.leases / has.len(), scenario.leases % has.len());
    let kept =
        has.iter().enumerate().map(|(rank, has)| (share + usize::from(rank < more)).min(*has));
    scenario.leases - kept.sum::<usize>() + away
}
