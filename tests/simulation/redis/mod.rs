//! Trials of lease-redis: the real store and driver, on models of servers that run the real
//! scripts.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used,
    reason = "a model panics on an unknown request"
)]

mod contention;
mod controls;
mod fleet;
mod late_confirmation;
mod model;
mod recorders;
mod server;
mod sessions;
mod shared_random;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lease_core::conformance::{Event, SeedRange, Survey, Trial, Verdict};
use lease_core::store::LeaseTable;
use lease_core::{Change, Lease, LeaseOptions};
use lease_redis::{RedisQuorumBuilder, RedisStore};

use crate::job::{Mail, Write, contend};
use fleet::{Clocks, Network, Plan, Strike};
use model::Servers;
use server::scripts::Edition;

#[test]
fn quorum_of_three_keeps_its_promises() {
    let survey = SeedRange::fresh(30).all_hold(|seed| quorum(seed, sound(3), quarantined));
    report("quorum of 3", &survey);
}

#[test]
fn quorum_of_five_keeps_its_promises() {
    let survey = SeedRange::fresh(15).all_hold(|seed| quorum(seed, sound(5), quarantined));
    report("quorum of 5", &survey);
}

#[test]
fn records_on_one_server_keep_their_promises() {
    let survey = SeedRange::fresh(60).all_hold(|seed| one_server(seed, sound(1)));
    report("records on one server", &survey);
}

/// Most waiters wait in turn.
#[test]
fn locks_on_one_server_keep_their_promises() {
    let survey = SeedRange::fresh(60).all_hold(|seed| locks(seed, sound(1)));
    report("locks on one server", &survey);
}

/// Leases expire early, and the failure table of the README allows two holders. Tokens stay unique,
/// so former holders cannot write.
#[test]
fn server_clock_set_forward_breaks_only_exclusion() {
    let plan = Plan { strikes: &[Strike::SetForward], ..sound(1) };

    for trial in [one_server, locks] {
        controls::find("one server set forward", SeedRange::first(100), |seed| {
            trial(seed, plan.clone())
        });
        let trial = |seed| but_for_exclusion(trial(seed, plan.clone()));
        report("one server set forward, except exclusion", &SeedRange::fresh(20).all_hold(trial));
    }
}

#[test]
fn server_with_leaping_clock_breaks_only_exclusion() {
    let plan = Plan { clocks: Clocks::LeapAhead, ..sound(1) };
    for (form, trial) in [("records", one_server as fn(_, _) -> _), ("locks", locks)] {
        let trial = |seed| but_for_exclusion(trial(seed, plan.clone()));
        let what = format!("{form} with a leaping clock, except exclusion");
        report(&what, &SeedRange::fresh(30).all_hold(trial));
    }
}

/// A promoted replica lacks the last grants, releases and places in queues. So the README's failure
/// table allows two holders.
#[test]
fn fail_over_breaks_only_exclusion_of_locks() {
    let trial = |seed| but_for_exclusion(locks(seed, failing_over()));
    report("locks with fail-overs, except exclusion", &SeedRange::fresh(30).all_hold(trial));

    controls::find("a server that fails over", SeedRange::first(100), |seed| {
        locks(seed, failing_over())
    });
}

#[test]
fn fail_over_breaks_only_exclusion_of_records() {
    let trial = |seed| but_for_exclusion(one_server(seed, failing_over()));
    report("records with fail-overs, except exclusion", &SeedRange::fresh(30).all_hold(trial));
}

#[test]
fn quorum_of_one_set_forward_breaks_only_exclusion() {
    let plan = Plan { strikes: &[Strike::SetForward], ..sound(1) };

    controls::find("quorum of 1 set forward", SeedRange::first(100), |seed| {
        quorum(seed, plan.clone(), quarantined)
    });
    let trial = |seed| but_for_exclusion(quorum(seed, plan.clone(), quarantined));
    report("quorum of 1 set forward, except exclusion", &SeedRange::fresh(20).all_hold(trial));
}

#[test]
fn quorum_with_leaping_clocks_grants_no_token_twice() {
    let plan = Plan { clocks: Clocks::LeapAhead, ..sound(3) };
    let trial = |seed| but_for_exclusion(quorum(seed, plan.clone(), quarantined));
    report(
        "quorum of 3 with leaping clocks, except exclusion",
        &SeedRange::fresh(15).all_hold(trial),
    );
}

/// A server without data votes again only after every earlier lease has expired.
#[test]
fn quorum_whose_majority_loses_data_keeps_promises() {
    let survey = SeedRange::fresh(20).all_hold(|seed| quorum(seed, forgetful(), quarantined));
    report("quorum of 3 that loses its data", &survey);
}

#[test]
fn same_seed_gives_the_same_trace() {
    for seed in 0..5 {
        assert_eq!(quorum(seed, sound(3), quarantined), quorum(seed, sound(3), quarantined));
        assert_eq!(one_server(seed, sound(1)), one_server(seed, sound(1)));
        assert_eq!(locks(seed, sound(1)), locks(seed, sound(1)));
    }
}

/// The README's failure table allows no violation under these faults.
fn sound(servers: usize) -> Plan {
    let strikes: &[Strike] = if servers == 1 { &ON_ONE_SERVER } else { &ON_A_MINORITY };
    Plan {
        servers,
        edition: Edition::default(),
        strikes,
        most_forgetful: (servers - 1) / 2,
        mishaps: &[],
        clocks: Clocks::Steady,
        ttl: TTL,
        hung: 0,
        network: Network::Faulty,
    }
}

/// A replica is promoted after it missed writes for up to two ttls.
fn failing_over() -> Plan {
    const STRIKES: &[Strike] = &[
        Strike::FailOver,
        Strike::FailOver,
        Strike::Hang,
        Strike::KillConnections,
        Strike::CutOff,
    ];
    Plan { strikes: STRIKES, ..sound(1) }
}

/// A majority of the servers, or all, lose their data at the same time.
fn forgetful() -> Plan {
    Plan { strikes: &[Strike::Amnesia], most_forgetful: 3, ..sound(3) }
}

const ON_ONE_SERVER: [Strike; 5] =
    [Strike::Hang, Strike::Restart, Strike::KillConnections, Strike::FlushScripts, Strike::CutOff];

const ON_A_MINORITY: [Strike; 7] = [
    Strike::Hang,
    Strike::Restart,
    Strike::Amnesia,
    Strike::KillConnections,
    Strike::FlushScripts,
    Strike::CutOff,
    Strike::SetBack,
];

fn quorum(seed: u64, plan: Plan, set_up: fn(RedisQuorumBuilder) -> RedisQuorumBuilder) -> Verdict {
    let mail = Mail::default();
    let verdict = trial(seed).run(
        |world| Servers::of_a_quorum(world, plan, set_up),
        move |contender| contend(contender, Arc::clone(&mail), write_nothing),
    );
    check_that_leases_were_granted(&verdict);
    verdict
}

/// Each holder writes to the record of its key.
fn one_server(seed: u64, plan: Plan) -> Verdict {
    one_server_with(seed, plan, write)
}

/// Without writes, the key is a lock, not a record.
fn locks(seed: u64, plan: Plan) -> Verdict {
    one_server_with(seed, plan, write_nothing)
}

fn one_server_with(seed: u64, plan: Plan, write: Write<RedisStore>) -> Verdict {
    let mail = Mail::default();
    let verdict = trial(seed).run(
        |world| Servers::of_one(world, plan),
        move |contender| contend(contender, Arc::clone(&mail), write),
    );
    check_that_leases_were_granted(&verdict);
    verdict
}

/// Long enough for a server without data to vote again.
fn trial(seed: u64) -> Trial {
    let options = LeaseOptions::new(TTL).unwrap();
    let options = options.with_poll_interval(TTL / 2).unwrap();
    Trial::new(seed).with_options(options).with_length(TTL * 13)
}

fn quarantined(builder: RedisQuorumBuilder) -> RedisQuorumBuilder {
    builder.with_max_ttl(LONGEST_TTL)
}

/// The ledger judges only recorded grants.
fn check_that_leases_were_granted(verdict: &Verdict) {
    let granted: BTreeSet<_> = verdict
        .trace
        .iter()
        .filter_map(|event| event.what.strip_prefix("shared granted to "))
        .collect();
    for event in &verdict.trace {
        let Some((lessee, token)) = new_holder(event) else { continue };
        let grant = format!("{lessee} under token {token}");
        assert!(granted.contains(grant.as_str()), "{}\n{event}", verdict.report(60));
    }
}

fn write_nothing<'a, S>(_store: &'a S, _lease: &'a Lease) -> BoxFuture<'a, ()> {
    async {}.boxed()
}

fn write<'a>(store: &'a RedisStore, lease: &'a Lease) -> BoxFuture<'a, ()> {
    let change = Change::new().set("token", lease.token().get());
    // The ledger judges whether the write was allowed.
    async move { drop(store.update(lease.grant(), &change).await) }.boxed()
}

/// Removes the violations of promises that depend on clocks. Tokens must stay unique, and former
/// holders cannot write. The order of tokens depends on clocks, since two concurrent holders may
/// report their grants in either order.
fn but_for_exclusion(mut verdict: Verdict) -> Verdict {
    let on_time = ["two holders", "loss reported too late", "tokens out of order"];
    verdict.violations.retain(|found| !on_time.iter().any(|kind| found.what.starts_with(kind)));
    let mut lessees = BTreeMap::new();
    for event in &verdict.trace {
        let Some((lessee, token)) = new_holder(event) else { continue };
        if let Some(earlier) = lessees.insert(token, lessee) {
            let mut violation = event.clone();
            violation.what =
                format!("a token was granted twice: {token}, to {earlier} and {lessee}");
            verdict.violations.push(violation);
        }
    }
    verdict
}

fn new_holder(event: &Event) -> Option<(&str, &str)> {
    let (lessee, token) = event.what.split_once(" holds shared under token ")?;
    (!lessee.ends_with(" no longer")).then_some((lessee, token))
}

fn report(model: &str, survey: &Survey) {
    println!("{model}: {survey}");
}

const TTL: Duration = Duration::from_millis(300);

/// Two and a half ttls: the longest ttl of a hand-over.
const LONGEST_TTL: Duration = Duration::from_millis(750);
