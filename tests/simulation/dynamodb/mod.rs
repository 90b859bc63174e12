//! Trials of lease-dynamodb with the real SDK, on a model of DynamoDB. The model keeps or breaks DynamoDB's
//! documented behaviour.
//!
//! At full size:
//! `LEASE_SEEDS=100000 cargo test --release -p lease-simulation-tests --test simulation -- --nocapture dynamodb`.

mod agreement;
mod batches;
mod controls;
mod front_end;
mod request;
mod sdk;
mod service;
mod session_requests;
mod sessions;
mod setup;
mod table;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lease_core::conformance::{Contender, SeedRange, Trial, Verdict, Violation};
use lease_core::store::LeaseTable;
use lease_core::{Change, Lease, LeaseOptions};
use lease_dynamodb::{DynamoDbStore, TimeMode};

use crate::job::{Mail, contend};
use service::Service;
use setup::{Breach, Setup};

const BY_SERVER_TIME: TimeMode = TimeMode::ServerTimeAndObservation;
const BY_OBSERVATION: TimeMode = TimeMode::ObservationOnly;

#[test]
fn promises_hold() {
    hold("dynamodb", SEEDS, &Setup::sound(BY_SERVER_TIME));
}

#[test]
fn promises_hold_by_observation_alone() {
    hold("dynamodb by observation", SEEDS, &Setup::sound(BY_OBSERVATION));
}

#[test]
fn same_seed_gives_the_same_trace() {
    for seed in 0..5 {
        let setup = Setup::sound(BY_SERVER_TIME);
        let (one, other) = (run(seed, &setup), run(seed, &setup));
        let first = one.trace.iter().zip(&other.trace).find(|(one, other)| one != other);
        assert!(one == other, "seed {seed}: {first:?}");
    }
}

/// The store changes an item only by conditional writes, so an outdated read does no harm.
#[test]
fn stale_consistent_reads_are_harmless() {
    let setup = Setup::sound(BY_SERVER_TIME).breaking(Breach::StaleReads);
    hold("dynamodb with stale reads", SEEDS, &setup);
}

#[test]
fn dates_beyond_the_margin_break_server_time_only() {
    let apart = Setup { apart: Duration::from_secs(5), ..Setup::sound(BY_SERVER_TIME) };

    find("dates 5 s apart", &apart);
    hold(
        "dynamodb with dates 5 s apart, by observation",
        SEEDS,
        &Setup { mode: BY_OBSERVATION, ..apart },
    );
}

/// Without the item, tokens start again from the current time. A process without a response from
/// `DynamoDB` takes this time from its machine's clock, which may be behind.
#[test]
fn deleted_item_breaks_exclusion_and_token_order() {
    let setup = Setup::sound(BY_SERVER_TIME).breaking(Breach::LosesItem);

    find("item deleted by hand", &setup);
    let survey = SeedRange::fresh(SEEDS).all_hold(|seed| {
        let mut verdict = run(seed, &setup);
        verdict.violations.retain(|violation| {
            let about_tokens = violation.what.starts_with("tokens out of order");
            !is_about_two_holders(violation) && !about_tokens
        });
        verdict
    });
    println!("dynamodb with a deleted item, except exclusion and token order: {survey}");
}

/// The restored counter is as old as the backup. So the store grants tokens from after the backup
/// again.
#[test]
fn table_restored_from_a_backup_breaks_token_order() {
    let setup = Setup::sound(BY_SERVER_TIME).breaking(Breach::Restores);

    find("backup restored", &setup);
    let found = SeedRange::first(FEW).find_violation(|seed| {
        let mut verdict = run(seed, &setup);
        verdict.violations.retain(|violation| violation.what.starts_with("tokens out of order"));
        verdict
    });
    report("backup restored, tokens", found);
}

#[test]
fn global_table_does_not_exclude() {
    find("two Regions", &Setup::sound(BY_SERVER_TIME).breaking(Breach::TwoRegions));
}

fn hold(what: &str, seeds: u64, setup: &Setup) {
    let survey = SeedRange::fresh(seeds).all_hold(|seed| run(seed, setup));
    println!("{what}: {survey}");
}

fn find(control: &str, setup: &Setup) {
    find_in(control, SeedRange::first(FEW), setup);
}

fn find_in(control: &str, seeds: SeedRange, setup: &Setup) {
    report(control, seeds.find_violation(|seed| run(seed, setup)));
}

fn report(control: &str, found: Option<(u64, Violation)>) {
    let (seed, violation) = found.unwrap_or_else(|| panic!("{control}: no violation"));
    assert!(!violation.what.contains("the model"), "{violation}");
    println!("{control}: seed {seed}: {violation}");
}

fn is_about_two_holders(violation: &Violation) -> bool {
    ["two holders", "loss reported too late"].iter().any(|kind| violation.what.starts_with(kind))
}

/// With a third of the seeds, the ttl is a second, the resolution of DynamoDB's dates.
fn run(seed: u64, setup: &Setup) -> Verdict {
    trial(Trial::new(seed), ttl(seed), setup)
}

fn ttl(seed: u64) -> Duration {
    Duration::from_millis(if seed.is_multiple_of(3) { 1000 } else { 300 })
}

fn trial(trial: Trial, ttl: Duration, setup: &Setup) -> Verdict {
    let options = LeaseOptions::new(ttl).unwrap().with_poll_interval(ttl / 2).unwrap();
    let mail = Mail::default();
    trial.with_options(options).run(
        |world| Service::new(world, setup.clone()),
        move |contender: Contender<DynamoDbStore>| contend(contender, Arc::clone(&mail), write),
    )
}

fn write<'a>(store: &'a DynamoDbStore, lease: &'a Lease) -> BoxFuture<'a, ()> {
    let change = Change::new().set("written_under", lease.token().get());
    // The ledger judges whether the write was allowed.
    async move { drop(store.update(lease.grant(), &change).await) }.boxed()
}

/// `./test` runs this many trials of each kind, with new seeds each time. `./test --deep` runs
/// more.
const SEEDS: u64 = 12;

/// A control must find a violation within this number of trials.
const FEW: u64 = 3000;
