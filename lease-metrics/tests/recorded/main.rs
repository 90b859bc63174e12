//! Fires each alert rule on series that were recorded in runs under faults.
//!
//! Each test runs lockers, schedulers, workers or exporters in paused time, on a store in memory. A recorder per
//! simulated process is scraped every 15 s. Then `promtool test rules` evaluates `docs/operate/alerts.yml` on the
//! recorded series.
//!
//! - `recording.rs`: scrapes the processes, and lets `promtool` check which alerts fire when.
//! - `rules.rs`: the rules of `alerts.yml`.
//! - `leases.rs`, `jobs.rs`, `workers.rs`, `exporters.rs`: the runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod exporters;
mod jobs;
mod leases;
mod recording;
mod rules;
mod workers;

use std::collections::BTreeSet;

use crate::rules::Rules;

#[test]
fn each_alert_has_a_recorded_fault() {
    let recorded = [leases::ALERTS, jobs::ALERTS, workers::ALERTS, exporters::ALERTS].concat();

    let recorded: BTreeSet<_> = recorded.concat().into_iter().map(str::to_owned).collect();

    assert_eq!(recorded, Rules::read().alerts().into_iter().collect());
}
