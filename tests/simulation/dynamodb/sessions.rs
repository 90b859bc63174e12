//! Trials of leases under sessions, with one control per condition of a session's writes.

use std::sync::Arc;
use std::time::Duration;

use lease_core::LeaseOptions;
use lease_core::conformance::{Contender, SeedRange, Trial, Verdict};
use lease_dynamodb::DynamoDbStore;

use super::service::Service;
use super::setup::{Breach, Setup};
use super::{BY_OBSERVATION, BY_SERVER_TIME, FEW, SEEDS, report, ttl, write};
use crate::job::Mail;
use crate::session_job::{Sessions, contend_under_sessions};

#[test]
fn sessions_keep_their_promises() {
    hold("sessions", &Setup::sound(BY_SERVER_TIME));
}

#[test]
fn sessions_keep_their_promises_by_observation_alone() {
    hold("sessions by observation", &Setup::sound(BY_OBSERVATION));
}

/// A proof is irrevocable, and a claim compares the token. So a read may be stale.
#[test]
fn sessions_keep_their_promises_with_stale_reads() {
    for mode in [BY_SERVER_TIME, BY_OBSERVATION] {
        let setup = Setup::sound(mode).breaking(Breach::StaleHints);
        hold(&format!("sessions with stale reads, {mode:?}"), &setup);
    }
}

/// Each of these seeds has found a contender that claimed a free key for ever.
#[test]
fn seeds_that_have_starved_a_contender_hold() {
    let by_observation = Setup::sound(BY_OBSERVATION);
    let with_stale_reads = Setup::sound(BY_SERVER_TIME).breaking(Breach::StaleHints);
    for (seed, setup) in [
        // The grant of its session had expired before an answer arrived.
        (1_853_238_977_000_007, by_observation),
        // Its claim under its session had met the late hand-over of a former holder.
        (1_456_831_245_000_304, with_stale_reads),
    ] {
        let verdict = run(seed, Sessions::of(seed), &setup);
        assert!(verdict.violations.is_empty(), "{}", verdict.report(60));
    }
}

#[test]
fn same_seed_gives_the_same_trace_of_sessions() {
    for seed in 0..5 {
        let setup = Setup::sound(BY_SERVER_TIME);
        let run = || run(seed, Sessions::of(seed), &setup);
        assert!(run() == run(), "seed {seed}");
    }
}

/// A late claim is granted under a session that is held, but no process has the lease.
#[test]
fn claim_that_ignores_the_token_is_detected() {
    let parts = &["#token = :seen_token", "attribute_not_exists(#token)"];
    let setup = Setup::sound(BY_SERVER_TIME).breaking(Breach::AssumesOfClaim(parts));
    detects("claim under any token", "no progress", Sessions::Long, &setup);
}

/// The locker reads a session before ending it, and an ended session stays ended. So these two
/// controls find only that a session is judged wrongly.
/// `lease-dynamodb/tests/live/sessions/conditions.rs` has controls of the write's conditions.
#[test]
fn end_of_a_session_before_its_ttl_is_detected() {
    let hasty = Setup::sound(BY_OBSERVATION).breaking(Breach::HastyStores(1.5));
    detects("session observed for two thirds of the ttl", "two holders", Sessions::Long, &hasty);
    let no_margin = Setup { margin: Duration::ZERO, ..Setup::sound(BY_SERVER_TIME) };
    detects("sessions without a margin", "two holders", Sessions::Long, &no_margin);
}

fn hold(what: &str, setup: &Setup) {
    let survey = SeedRange::fresh(SEEDS).all_hold(|seed| run(seed, Sessions::of(seed), setup));
    println!("dynamodb, {what}: {survey}");
}

/// Expects a violation that begins with `what`, and prints it.
fn detects(control: &str, what: &str, sessions: Sessions, setup: &Setup) {
    let found = SeedRange::first(FEW).find_violation(|seed| {
        let mut verdict = run(seed, sessions, setup);
        verdict.violations.retain(|violation| violation.what.starts_with(what));
        verdict
    });
    report(control, found);
}

fn run(seed: u64, sessions: Sessions, setup: &Setup) -> Verdict {
    let ttl: Duration = ttl(seed);
    let options = LeaseOptions::new(ttl).unwrap().with_poll_interval(ttl / 2).unwrap();
    let mail = Mail::default();
    // With reads that are older than most holds, a contender rarely sees the present token.
    let patience = if setup.breach == Some(Breach::StaleHints) { 400 } else { 100 };
    Trial::new(seed).with_options(options).with_patience(patience).run(
        |world| Service::new(world, setup.clone()),
        move |contender: Contender<DynamoDbStore>| {
            contend_under_sessions(contender, Arc::clone(&mail), write, sessions)
        },
    )
}
