//! Judges the progress of a run.
//!
//! A bound counts only the time in which the judge's connection wrote to the shard and the judged
//! process ran. So a busy machine breaks no rule.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::faults::single_fault::SingleFault;
use crate::judge::counted::Counted;
use crate::judge::observations::{Episode, Observations, ProbeLog, ShardLog};
use crate::monotonic::Monotonic;
use crate::probe::KEPT_TTL;
use crate::probe::event::Call;

#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) breaches: Vec<Breach>,
    pub(crate) faults: BTreeMap<SingleFault, FaultRow>,
    pub(crate) ratios: Vec<Ratio>,
    /// The smallest share of a shard or a probe.
    pub(crate) least_counted: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Breach {
    pub(crate) rule: ProgressRule,
    pub(crate) from: Monotonic,
    pub(crate) until: Monotonic,
    pub(crate) what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressRule {
    /// A free key is granted within [`BOUND`] after the plain connection has reached the master.
    NoGrant,
    /// A lease is kept unless the fault affects its master.
    LeaseLost,
    /// With a hung minority, keys are granted at two thirds of the healthy rate or more.
    Slow,
    /// If the memory is full, the error of an attempt names `maxmemory`.
    MemoryUnnamed,
}

#[derive(Debug, Default)]
pub(crate) struct FaultRow {
    pub(crate) count: usize,
    pub(crate) longest: Duration,
    pub(crate) longest_counted: Duration,
    /// The counted time until the first grant of a new process. The time starts with the process,
    /// or when the plain connection reaches the master later.
    pub(crate) newcomer: Option<Duration>,
    pub(crate) promoted: Option<Duration>,
    pub(crate) lost_where_hit: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) hung: f64,
    pub(crate) healthy: f64,
}

pub(crate) fn judge_progress(seen: &Observations) -> Progress {
    let mut progress = Progress::default();
    for episode in &seen.episodes {
        let row = progress.faults.entry(episode.fault).or_default();
        row.count += 1;
        for &shard in &episode.hit {
            let promoted = seen.shards.get(shard).and_then(|log| episode.promotion(log));
            row.promoted = row.promoted.max(promoted.map(|at| at.since(episode.from)));
        }
    }
    for probe in seen.probes.iter().filter(|probe| !probe.contends) {
        let ticks = Counted::between_beats(&probe.ticks);
        for (shard, log) in seen.shards.iter().enumerate() {
            let counted = Counted::between_beats(&log.beats).and(&ticks);
            progress.judge_grants(seen, probe, shard, &counted);
            progress.judge_losses(seen, probe, shard, &counted);
            progress.judge_memory(seen, probe, shard, &counted);
            if let (Some(&first), Some(&last)) = (probe.ticks.first(), probe.ticks.last())
                && !probe.is_newcomer
            {
                let share = counted.within(first, last).as_secs_f64();
                let share = share / last.since(first).as_secs_f64().max(0.001);
                let least = progress.least_counted.map_or(share, |least| least.min(share));
                progress.least_counted = Some(least);
            }
        }
    }
    progress.judge_rates(seen);
    progress.breaches.sort_by_key(|breach| breach.from);
    progress
}

impl Progress {
    fn judge_grants(
        &mut self,
        seen: &Observations,
        probe: &ProbeLog,
        shard: usize,
        counted: &Counted,
    ) {
        let (Some(&first), Some(&last)) = (probe.ticks.first(), probe.ticks.last()) else { return };
        let Some(log) = seen.shards.get(shard) else { return };
        // While the memory is full, no key is granted. The bound restarts when the memory is free
        // again.
        let (mut counted, mut resets) = (counted.clone(), log.reached.clone());
        for (_, from, until) in seen.full_memory(shard) {
            counted = counted.without(from, until);
            resets.push(until);
        }
        for call in [Call::Obtain, Call::Wait] {
            let grants = probe.granted(shard, call);
            // A span reaches from one grant to the next. For the rule, each reset also begins a
            // span.
            let spans = |resets: &[Monotonic]| -> Vec<(Monotonic, Monotonic)> {
                let mut points = [&[first, last], grants, resets].concat();
                points.retain(|at| (first..=last).contains(at));
                points.sort();
                points.iter().copied().zip(points.iter().skip(1).copied()).collect()
            };
            for (from, until) in spans(&[]) {
                self.widen(seen, (from, until), |row| {
                    row.longest = row.longest.max(until.since(from));
                });
            }
            for (from, until) in spans(&resets) {
                let length = counted.within(from, until);
                self.widen(seen, (from, until), |row| {
                    row.longest_counted = row.longest_counted.max(length);
                });
                if length > BOUND {
                    let (call, length) = (call.to_string(), round(length));
                    let why = probe.why(shard, (from, until));
                    let during = seen.during(from, until);
                    self.breaches.push(Breach {
                        rule: ProgressRule::NoGrant,
                        from,
                        until,
                        what: format!(
                            "shard {}: {call} of {} got no grant for {length:?} of counted \
                             time{during}{why}",
                            shard + 1,
                            probe.name(),
                        ),
                    });
                }
            }
            if probe.is_newcomer {
                let granted = grants.first().copied().unwrap_or(last);
                let from = resets.iter().copied().filter(|at| *at < granted).max();
                let length = counted.within(from.unwrap_or(first).max(first), granted);
                self.widen(seen, (first, first), |row| {
                    row.newcomer = row.newcomer.max(Some(length));
                });
            }
        }
    }

    fn judge_losses(
        &mut self,
        seen: &Observations,
        probe: &ProbeLog,
        shard: usize,
        counted: &Counted,
    ) {
        for loss in probe.losses.iter().filter(|loss| loss.shard == shard) {
            let hurt = |episode: &&Episode| {
                let until = episode.settled + KEPT_TTL;
                episode.hit.contains(&shard) && episode.from <= loss.at && loss.at <= until
            };
            if let Some(episode) = seen.episodes.iter().find(hurt) {
                self.faults.entry(episode.fault).or_default().lost_where_hit += 1;
                continue;
            }
            // A heartbeat needs processor time. If less than half of the ttl counts, the loss
            // proves nothing.
            let from = loss.at - KEPT_TTL;
            let length = counted.within(from, loss.at);
            if length < KEPT_TTL / 2 {
                continue;
            }
            let what = format!(
                "shard {}: {} lost a lease of {KEPT_TTL:?} ({}); {:?} of the ttl counted{}",
                shard + 1,
                probe.name(),
                loss.why,
                round(length),
                seen.during(from, loss.at),
            );
            let rule = ProgressRule::LeaseLost;
            self.breaches.push(Breach { rule, from, until: loss.at, what });
        }
    }

    fn judge_memory(
        &mut self,
        seen: &Observations,
        probe: &ProbeLog,
        shard: usize,
        counted: &Counted,
    ) {
        for (_, from, until) in seen.full_memory(shard) {
            // On a slow machine, one attempt may take two timeouts, so a shorter time proves
            // nothing.
            if probe.is_newcomer || counted.within(from, until) < BOUND {
                continue;
            }
            let mut failures = probe
                .failures
                .iter()
                .filter(|failure| failure.shard == shard && (from..until).contains(&failure.at));
            if failures.any(|failure| failure.why.contains("maxmemory")) {
                continue;
            }
            let what = format!(
                "shard {}: no attempt named maxmemory{}",
                shard + 1,
                probe.why(shard, (from, until))
            );
            let rule = ProgressRule::MemoryUnnamed;
            self.breaches.push(Breach { rule, from, until, what });
        }
    }

    /// Uses the median, since a busy machine may slow some slices.
    fn judge_rates(&mut self, seen: &Observations) {
        let contending = seen.probes.iter().find(|probe| probe.contends);
        let (Some(contending), Some(log)) = (contending, seen.shards.first()) else { return };
        let grants = contending.granted(0, Call::Contend);
        let ticks = Counted::between_beats(&contending.ticks);
        let counted = Counted::between_beats(&log.beats).and(&ticks);
        let rate = |from: Monotonic, until: Monotonic| {
            let count = grants.iter().filter(|at| (from..until).contains(*at)).count();
            let counted = counted.within(from, until).as_secs_f64();
            f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / counted.max(0.001)
        };
        let slices = seen.episodes.iter().flat_map(|episode| episode.slices.windows(3));
        for slices in slices {
            let [before, hung, after] = slices else { continue };
            if !hung.hung {
                continue;
            }
            let long_enough = |from: Monotonic, until: Monotonic| {
                counted.within(from, until) > until.since(from) / 2
            };
            if [before, hung, after].iter().all(|slice| long_enough(slice.from, slice.until)) {
                let (before, after) =
                    (rate(before.from, before.until), rate(after.from, after.until));
                let healthy = f64::midpoint(before, after);
                self.ratios.push(Ratio { hung: rate(hung.from, hung.until), healthy });
            }
        }
        let mut shares: Vec<_> = self.ratios.iter().map(Ratio::share).collect();
        shares.sort_by(f64::total_cmp);
        let Some(&median) = shares.get(shares.len() / 2) else { return };
        if median < LEAST_SHARE {
            let slices: Vec<_> = seen.episodes.iter().flat_map(|one| &one.slices).collect();
            let (Some(first), Some(last)) = (slices.first(), slices.last()) else { return };
            self.breaches.push(Breach {
                rule: ProgressRule::Slow,
                from: first.from,
                until: last.until,
                what: format!(
                    "with a hung minority, keys were granted at {median:.2} of the healthy rate (median \
                     of {})",
                    shares.len()
                ),
            });
        }
    }

    fn widen(
        &mut self,
        seen: &Observations,
        (from, until): (Monotonic, Monotonic),
        mut change: impl FnMut(&mut FaultRow),
    ) {
        for episode in seen.episodes_during(from, until) {
            change(self.faults.entry(episode.fault).or_default());
        }
    }
}

impl Episode {
    /// The time at which the plain connection first reached another master.
    fn promotion(&self, log: &ShardLog) -> Option<Monotonic> {
        log.promoted.iter().copied().find(|at| self.from <= *at && *at <= self.settled)
    }
}

impl ProbeLog {
    fn name(&self) -> &'static str {
        if self.is_newcomer { "a new process" } else { "the probe" }
    }

    fn why(&self, shard: usize, (from, until): (Monotonic, Monotonic)) -> String {
        let mut failures = self.failures.iter().rev();
        let last =
            failures.find(|failure| failure.shard == shard && (from..=until).contains(&failure.at));
        last.map_or_else(String::new, |last| format!("; last failure: {} {}", last.call, last.why))
    }
}

impl Ratio {
    pub(crate) fn share(&self) -> f64 {
        self.hung / self.healthy.max(0.001)
    }
}

impl fmt::Display for ProgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoGrant => "no grant",
            Self::LeaseLost => "lease lost",
            Self::Slow => "slow with a hung minority",
            Self::MemoryUnnamed => "full memory not named",
        })
    }
}

pub(crate) fn round(length: Duration) -> Duration {
    Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

/// The bound counts from the time at which the plain connection reaches the master.
pub(crate) const BOUND: Duration = Duration::from_secs(5);

pub(crate) const LEAST_SHARE: f64 = 2.0 / 3.0;

#[cfg(test)]
mod tests;
