//! Random trials of the store, in virtual time, on a model of a service that compares and swaps.
//!
//! Requests are lost, late and doubled, processes stop and crash, and their clocks have different rates. The controls
//! break one rule each, and expect a violation. At full size:
//! `LEASE_SEEDS=100000 cargo test --release -p lease-register --test trials -- --nocapture`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics, and prints its figures"
)]

mod job;
mod remote;
mod service;

use std::sync::Arc;
use std::time::Duration;

use lease_core::LeaseOptions;
use lease_core::conformance::{Contender, SeedRange, Trial, Verdict};
use lease_register::{RegisterStore, Versions};

use crate::job::{LAG, Mail, REFUSED, contend};
use crate::remote::Remote;
use crate::service::{Breach, Service, Setup};

const SOUND: Setup = Setup {
    versions: Versions::Opaque,
    dates: None,
    margin: Duration::from_millis(600),
    lag: Duration::ZERO,
    breach: None,
};

/// The service tells its time. The clocks of its machines differ by almost the margin.
const DATED: Setup = Setup { dates: Some(Duration::from_millis(599)), ..SOUND };

#[test]
fn promises_hold_with_opaque_versions() {
    hold("opaque versions", &SOUND);
}

#[test]
fn promises_hold_with_growing_versions() {
    hold("growing versions", &Setup { versions: Versions::Growing, ..SOUND });
}

#[test]
fn promises_hold_with_the_time_of_the_service() {
    hold("dates", &DATED);
}

/// A read that is too old leads to a conflict, and to no grant. If reads are older than the key is ever free, a
/// contender may obtain nothing.
#[test]
fn promises_hold_if_reads_lag() {
    hold("reads that lag", &Setup { lag: LAG, ..SOUND });
    hold("reads that lag, with dates", &Setup { lag: LAG, ..DATED });
    let lagging = Setup { lag: Duration::from_millis(400), ..SOUND };
    let survey = SeedRange::fresh(SEEDS).all_hold(|seed| {
        let mut verdict = without_refusals(run(seed, &lagging));
        verdict.violations.retain(|violation| !violation.what.starts_with("no progress"));
        verdict
    });
    println!("reads that lag by more than a ttl, except progress and hand-overs: {survey}");
}

#[test]
fn growing_tokens_grow_over_deletions() {
    let deleting = Setup { versions: Versions::Growing, breach: Some(Breach::Deletes), ..SOUND };

    let survey = SeedRange::fresh(SEEDS).all_hold(|seed| tokens_alone(run(seed, &deleting)));

    println!("deletions by hand, tokens alone: {survey}");
    let restarting = Setup { breach: Some(Breach::DeletesAndRestarts), ..deleting };
    let found = SeedRange::first(FEW).find_violation(|seed| tokens_alone(run(seed, &restarting)));
    println!("versions that restart: {found:?}");
    assert!(found.is_some(), "versions that restart after a deletion break no order of tokens");
}

#[test]
fn replacement_without_version_is_detected() {
    find(&Setup { breach: Some(Breach::IgnoresVersions), ..SOUND });
}

#[test]
fn heartbeat_that_changes_no_number_is_detected() {
    find(&Setup { breach: Some(Breach::KeepsTheBeat), ..SOUND });
}

#[test]
fn observation_shorter_than_the_ttl_is_detected() {
    find(&Setup { breach: Some(Breach::HastyStores), ..SOUND });
}

#[test]
fn expiry_by_another_machines_clock_is_detected() {
    find(&Setup { breach: Some(Breach::ForeignClocks), ..DATED });
}

#[test]
fn time_of_the_service_without_margin_is_detected() {
    find(&Setup { margin: Duration::ZERO, ..DATED });
}

/// Control: clock rates differ ten times as much as the options assume.
#[test]
fn clock_rates_beyond_the_assumption_are_detected() {
    let found = SeedRange::first(FEW).find_violation(|seed| {
        without_refusals(trial(Trial::new(seed).with_clock_rates(0.1), seed, &SOUND))
    });
    println!("clocks 10 % off: {found:?}");
    assert!(found.is_some());
}

fn hold(what: &str, setup: &Setup) {
    let survey = SeedRange::fresh(SEEDS).all_hold(|seed| run(seed, setup));
    println!("{what}: {survey}");
}

fn find(setup: &Setup) {
    let found = SeedRange::first(FEW).find_violation(|seed| without_refusals(run(seed, setup)));
    println!("{setup:?}: {found:?}");
    assert!(found.is_some(), "no violation with {setup:?}");
}

/// A control must break more than hand-overs.
fn without_refusals(mut verdict: Verdict) -> Verdict {
    verdict.violations.retain(|violation| !violation.what.starts_with(REFUSED));
    verdict
}

/// After a deletion by hand, two lessees may hold a key. Only the order of the tokens remains.
fn tokens_alone(mut verdict: Verdict) -> Verdict {
    verdict.violations.retain(|violation| violation.what.starts_with("tokens out of order"));
    verdict
}

fn run(seed: u64, setup: &Setup) -> Verdict {
    trial(Trial::new(seed), seed, setup)
}

/// Runs one trial. With a third of the seeds, the ttl is a second, the resolution of the service's dates.
fn trial(trial: Trial, seed: u64, setup: &Setup) -> Verdict {
    let ttl = Duration::from_millis(if seed.is_multiple_of(3) { 1000 } else { 300 });
    let options = LeaseOptions::new(ttl).unwrap().with_poll_interval(ttl / 2).unwrap();
    let mail = Mail::default();
    trial.with_options(options).run(
        |world| Service::new(world, *setup),
        move |contender: Contender<RegisterStore<Remote>>| contend(contender, Arc::clone(&mail)),
    )
}

/// The number of trials of each kind, with new seeds in each run.
const SEEDS: u64 = 40;

/// The number of trials within which a control must find a violation.
const FEW: u64 = 1000;
