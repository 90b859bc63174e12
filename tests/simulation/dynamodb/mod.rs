//! Trials of lease-dynamodb on the real SDK, over a model of DynamoDB that keeps or breaks what
//! is documented of it.
//!
//! At full size:
//! `LEASE_SEEDS=100000 cargo test --release -p lease-simulation-tests --test simulation -- --nocapture dynamodb`.

mod agreement;
mod controls;
mod expression;
mod front_end;
mod request;
mod sdk;
mod service;
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
fn dynamodb_keeps_its_promises() {
    hold("dynamodb", SEEDS, &Setup::sound(BY_SERVER_TIME));
}

#[test]
fn dynamodb_keeps_its_promises_by_observation_alone() {
    hold("dynamodb by observation", SEEDS, &Setup::sound(BY_OBSERVATION));
}

#[test]
fn a_seed_of_dynamodb_is_a_run_to_the_last_event() {
    for seed in 0..5 {
        let setup = Setup::sound(BY_SERVER_TIME);
        let (one, other) = (run(seed, &setup), run(seed, &setup));
        let first = one.trace.iter().zip(&other.trace).find(|(one, other)| one != other);
        assert!(one == other, "seed {seed}: {first:?}");
    }
}

/// What a refused write shows is acted upon by conditional writes alone.
#[test]
fn dynamodb_that_shows_what_was_is_harmless() {
    let setup = Setup::sound(BY_SERVER_TIME).breaking(Breach::StaleReads);
    hold("dynamodb with stale reads", SEEDS, &setup);
}

#[test]
fn dates_apart_by_more_than_the_margin_harm_who_goes_by_them() {
    let apart = Setup { apart: Duration::from_secs(5), ..Setup::sound(BY_SERVER_TIME) };

    find("dates 5 s apart", &apart);
    hold(
        "dynamodb with dates 5 s apart, by observation",
        SEEDS,
        &Setup { mode: BY_OBSERVATION, ..apart },
    );
}

/// Tokens start from the time again: from the machine's own, in a process that has not heard of
/// `DynamoDB`'s yet, and that one may be behind.
#[test]
fn an_item_deleted_by_hand_costs_exclusion_and_tokens_where_a_clock_is_behind() {
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
    println!("dynamodb whose item is deleted, but for what that costs: {survey}");
}

/// Tokens that were granted since are granted again: the counter is as old as the backup.
#[test]
fn a_table_restored_from_a_backup_costs_the_order_of_tokens_too() {
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
fn a_global_table_is_no_lock() {
    find("two Regions", &Setup::sound(BY_SERVER_TIME).breaking(Breach::TwoRegions));
}

fn hold(what: &str, seeds: u64, setup: &Setup) {
    let survey = SeedRange::fresh(seeds).all_hold(|seed| run(seed, setup));
    println!("{what}: {survey}");
}

/// Sees that trials find what goes wrong in `setup`, and says where.
fn find(control: &str, setup: &Setup) {
    find_in(control, SeedRange::first(FEW), setup);
}

fn find_in(control: &str, seeds: SeedRange, setup: &Setup) {
    report(control, seeds.find_violation(|seed| run(seed, setup)));
}

fn report(control: &str, found: Option<(u64, Violation)>) {
    let (seed, violation) = found.unwrap_or_else(|| panic!("{control}: nothing is found"));
    assert!(!violation.what.contains("the model"), "{violation}");
    println!("{control}: seed {seed}: {violation}");
}

fn is_about_two_holders(violation: &Violation) -> bool {
    ["two holders", "loss reported too late"].iter().any(|kind| violation.what.starts_with(kind))
}

/// One trial; in every third, leases of a second: DynamoDB's dates count no less.
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
    // Whether it was applied is for the ledger to judge.
    async move { drop(store.update(lease.grant(), &change).await) }.boxed()
}

/// The trials of each kind in `./test`, with new seeds in each run. `./test --deep` runs more.
const SEEDS: u64 = 12;

/// The most trials in which a control must be found.
const FEW: u64 = 3000;
