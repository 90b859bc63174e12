//! Prints what was measured: one table for each size of fleet.

use crate::measure::Measured;
use crate::scenario::{Event, Scenario};

/// One line: the medians of several runs.
pub(crate) fn line(rule: &str, runs: &[Measured]) -> String {
    let never = runs.iter().filter(|run| run.balanced_after.is_none()).count();
    let balanced = if 2 * never > runs.len() {
        "never".to_owned()
    } else {
        seconds(median(runs, |run| run.balanced_after.map_or(f64::MAX, whole)))
    };
    format!(
        "{rule:<16} {balanced:>9} {:>6} {:>6} {:>9} {:>9} {:>6} {:>8.1} {:>8.1}",
        median(runs, |run| whole(run.moves as u64)),
        median(runs, |run| whole(run.fewest_moves as u64)),
        seconds(median(runs, |run| whole(run.idle))),
        seconds(median(runs, |run| whole(run.overlap))),
        median(runs, |run| whole(run.spread as u64)),
        median(runs, |run| run.reads),
        median(runs, |run| run.writes),
    )
}

pub(crate) fn head(leases: usize, workers: usize) -> String {
    let columns = format!(
        "{:<16} {:>9} {:>6} {:>6} {:>9} {:>9} {:>6} {:>8} {:>8}",
        "", "balanced", "moves", "fewest", "idle", "overlap", "spread", "reads/s", "writes/s",
    );
    format!("\n{leases} leases, {workers} workers\n{columns}")
}

pub(crate) fn event(scenario: &Scenario) -> String {
    let note = match scenario.event {
        Event::RollingDeploy => " (balanced after the last worker was replaced)",
        _ => "",
    };
    format!("{}{note}", scenario.event.name())
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
