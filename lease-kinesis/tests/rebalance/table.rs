//! Prints what was measured: one table for each size of fleet.
//!
//! Medians of several runs; of real workers also the worst of all runs: how long nobody read a lease
//! that moved, how long to the first record of it (the 99th percentile, and the longest), records
//! that were worked on again, claims that found the lease held, writes by who did not hold it any
//! more, shards that were begun before their parents had ended, and records that nobody worked on.

use crate::fleet::{Millis, Seen};
use crate::measure::Measured;
use crate::scenario::Event;

/// One line: the medians of several runs.
pub(crate) fn line(rule: &str, runs: &[Measured]) -> String {
    let never = runs.iter().filter(|run| run.balanced_after.is_none()).count();
    let balanced = if 2 * never > runs.len() {
        "never".to_owned()
    } else {
        seconds(median(runs, |run| run.balanced_after.map_or(f64::MAX, whole)))
    };
    let seen = runs.iter().map(|run| run.seen.as_ref()).collect::<Option<Vec<_>>>();
    format!(
        "{rule:<20} {balanced:>9} {:>6} {:>6} {:>9} {:>9} {:>6} {:>8.1} {:>8.1} {}",
        median(runs, |run| whole(run.moves as u64)),
        median(runs, |run| whole(run.fewest_moves as u64)),
        seconds(median(runs, |run| whole(run.idle))),
        seconds(median(runs, |run| whole(run.overlap))),
        median(runs, |run| whole(run.spread as u64)),
        median(runs, |run| run.reads),
        median(runs, |run| run.writes),
        seen.map(|seen| seen_in(&seen)).unwrap_or_default(),
    )
}

/// Of all runs together: the worst, where a number has no middle.
fn seen_in(runs: &[&Seen]) -> String {
    let all = |of: fn(&Seen) -> &[Millis]| {
        let mut all: Vec<_> = runs.iter().flat_map(|seen| of(seen)).copied().collect();
        all.sort_unstable();
        all
    };
    let (idle, first) = (all(|seen| &seen.idle), all(|seen| &seen.first_records));
    let p99 = first.get(first.len() * 99 / 100).copied().unwrap_or(0);
    let most = |of: fn(&Seen) -> u64| runs.iter().map(|seen| of(seen)).max().unwrap();
    format!(
        "{:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6}",
        seconds(whole(idle.last().copied().unwrap_or(0))),
        seconds(whole(p99)),
        seconds(whole(first.last().copied().unwrap_or(0))),
        most(|seen| seen.replayed),
        most(|seen| seen.failed_claims),
        most(|seen| seen.stale_writes),
        most(|seen| seen.before_parents),
        most(|seen| seen.never_worked_on as u64),
    )
}

pub(crate) fn head(leases: usize, workers: usize) -> String {
    let columns = format!(
        "{:<20} {:>9} {:>6} {:>6} {:>9} {:>9} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6}",
        "",
        "balanced",
        "moves",
        "fewest",
        "idle",
        "overlap",
        "spread",
        "reads/s",
        "writes/s",
        "longest",
        "p99",
        "max",
        "replayed",
        "failed",
        "stale",
        "early",
        "unread",
    );
    format!("\n{leases} leases, {workers} workers\n{columns}")
}

pub(crate) fn event(event: Event) -> String {
    let note = match event {
        Event::RollingDeploy => " (balanced after the last worker was replaced)",
        Event::ReshardStorm => " (balanced after the last of both)",
        _ => "",
    };
    format!("{}{note}", event.name())
}

pub(crate) fn median(runs: &[Measured], of: impl Fn(&Measured) -> f64) -> f64 {
    let mut values: Vec<_> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn seconds(millis: f64) -> String {
    format!("{:.1} s", millis / 1000.0)
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn whole(number: u64) -> f64 {
    number as f64
}
