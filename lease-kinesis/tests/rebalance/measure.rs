//! Measures a fleet during a scenario.

use std::collections::{BTreeMap, BTreeSet};

use crate::fleet::{Costs, Fleet, Millis, Observed, Readers};
use crate::scenario::{Event, Scenario, Step};

#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// The time from the first step until each lease has one reader, and no worker has two leases
    /// more than another. In a deployment or a reshard storm, the time starts at the last step.
    pub(crate) balanced_after: Option<Millis>,
    pub(crate) moves: usize,
    pub(crate) fewest_moves: usize,
    /// The time without a reader, in milliseconds, summed over all leases.
    pub(crate) idle: Millis,
    /// The time with more than one reader, in milliseconds, summed over all leases and extra
    /// readers.
    pub(crate) overlap: Millis,
    pub(crate) spread: usize,
    /// Rows read per second while the fleet is at rest. `writes` counts writes per second.
    pub(crate) reads: f64,
    pub(crate) writes: f64,
    pub(crate) observed: Option<Observed>,
}

pub(crate) fn run(scenario: &Scenario, fleet: &mut dyn Fleet) -> Measured {
    let mut live = BTreeSet::new();
    if scenario.event != Event::ColdStart {
        for worker in 0..scenario.workers {
            Step::Join(worker).apply(fleet, 0);
            live.insert(worker);
        }
        run_until(scenario.begins(), fleet, |_, _, _| ());
    }

    let steps = scenario.steps(fleet.leader());
    let (begins, ends) = (scenario.begins(), scenario.ends());
    let (last_step, is_over) = (steps.last().unwrap().0, scenario.is_over());
    let rest = ends - scenario.span.rests;
    let observed = fleet.observed();
    let fewest_moves = fewest_moves(scenario, &steps, &live, fleet.who_reads());
    let moves = fleet.who_reads().moves();
    // At the last step of a storm, the fleet may look balanced, since no worker has noticed the new
    // shards yet.
    let has_to_stay = scenario.event == Event::ReshardStorm;
    let mut watch = Watch { has_to_stay, ..Watch::default() };
    let mut steps = steps.into_iter().peekable();
    let mut costs = (0, Costs::default());
    let mut now = begins;
    while now < ends {
        while let Some((when, step)) = steps.next_if(|(when, _)| *when <= now) {
            step.apply(fleet, when);
            match step {
                Step::Join(worker) => _ = live.insert(worker),
                Step::Crash(worker) | Step::Leave(worker) => _ = live.remove(&worker),
                _ => (),
            }
            watch.invalidate();
        }
        let next = steps.peek().map_or(ends, |(when, _)| *when);
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
            Event::RollingDeploy | Event::ReshardStorm => when.saturating_sub(last_step),
            _ => when - begins,
        }),
        moves: fleet.who_reads().moves() - moves,
        fewest_moves,
        idle: watch.idle,
        overlap: watch.overlap,
        spread: spread(fleet.who_reads(), &live),
        reads: a_second(fleet.costs().reads - before.reads),
        writes: a_second(fleet.costs().writes - before.writes),
        observed: fleet
            .observed()
            .zip(observed)
            .map(|(observed, before)| since(&observed, &before)),
    }
}

fn since(observed: &Observed, before: &Observed) -> Observed {
    Observed {
        idle: observed.idle[before.idle.len()..].to_vec(),
        first_records: observed.first_records[before.first_records.len()..].to_vec(),
        replayed: observed.replayed - before.replayed,
        failed_claims: observed.failed_claims - before.failed_claims,
        ..observed.clone()
    }
}

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
    until: Millis,
    observed: Option<u64>,
    unread: u64,
    too_many: u64,
    is_balanced: bool,
    has_to_stay: bool,
    balanced: Option<Millis>,
    idle: Millis,
    overlap: Millis,
}

impl Watch {
    fn invalidate(&mut self) {
        self.observed = None;
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
        if self.observed != Some(readers.changes()) {
            self.observed = Some(readers.changes());
            let counts = readers.counts();
            self.unread = counts.clone().filter(|count| *count == 0).count() as u64;
            self.too_many = counts.map(|count| count.saturating_sub(1)).sum();
            let by_one_each = self.unread == 0 && self.too_many == 0;
            self.is_balanced = by_one_each && spread(readers, live) <= 1;
        }
        if self.has_to_stay && !self.is_balanced {
            self.balanced = None;
        }
        if self.is_balanced && self.balanced.is_none() && from >= is_over {
            self.balanced = Some(from);
        }
        self.idle += self.unread * (until - from);
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

/// Each staying worker keeps its leases up to its share. The shares of the workers with the most leases are
/// rounded up. In a deployment, each lease moves once. After an outage, a worker gets back the leases that it
/// lost.
fn fewest_moves(
    scenario: &Scenario,
    steps: &[(Millis, Step)],
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
    for (_, step) in steps {
        match step {
            Step::Join(worker) => _ = has.insert(*worker, 0),
            Step::Crash(worker) | Step::Leave(worker) => _ = has.remove(worker),
            Step::Pause(worker, _) | Step::Cut(worker, _) => {
                // The worker loses its leases, then gets the smaller share: the others keep larger
                // shares.
                away += has[worker] + scenario.leases / has.len();
            }
            Step::SplitAll | Step::MergeAll => (),
        }
    }
    let mut has: Vec<_> = has.into_values().collect();
    has.sort_unstable_by(|one, other| other.cmp(one));
    let (share, more) = (scenario.leases / has.len(), scenario.leases % has.len());
    let kept =
        has.iter().enumerate().map(|(rank, has)| (share + usize::from(rank < more)).min(*has));
    scenario.leases - kept.sum::<usize>() + away
}
