//! Negative controls. Each control removes one part of a script, and expects a violation.
//!
//! Some parts matter only if several faults coincide. Their controls use an adversarial plan, under
//! which the complete scripts must cause no violation.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lease_core::Lease;
use lease_core::conformance::{Fault, SeedRange, Verdict, Violation};
use lease_core::store::LeaseTable;
use lease_redis::{RedisQuorumBuilder, RedisStore};

use super::fleet::{Clocks, Plan, Strike};
use super::server::scripts::Edition;
use super::{
    but_for_exclusion, forgetful, locks, one_server, one_server_with, quarantined, quorum, sound,
    write,
};
use crate::job::Write;

/// A former holder's heartbeat would extend the next holder's grant, and report an extension.
#[test]
fn heartbeat_of_any_nonce_is_detected() {
    let nonce = "if sub(text, 3, 34) ~= nonce then";
    let edition = edition("quorum/heartbeat", nonce, "if false then");
    on_a_quorum("heartbeats without the nonce", &edition, SeedRange::first(300));
}

/// A late heartbeat would shorten the ttl of a hand-over.
#[test]
fn heartbeats_without_numbers_are_detected() {
    let lock = edition("heartbeat", "if tonumber(last) >= tonumber(beat) then", "if false then");
    on_locks("heartbeats of a lock without numbers", &lock, SeedRange::first(1000));
    let record =
        edition("heartbeat", "if tonumber(held[3]) >= tonumber(beat) then", "if false then");
    on_one_server("heartbeats of a record without numbers", &record, SeedRange::first(1000));
}

/// A late heartbeat would extend the grant of a later request of the same claim, which may have no
/// holder.
#[test]
fn heartbeat_of_any_request_is_detected() {
    const LATE: Mishaps = &[("claims", Fault::ApplyLate(Duration::from_millis(1200)))];
    let plan = Plan { mishaps: LATE, clocks: Clocks::LeapAhead, ..sound(1) };
    let edition = edition("heartbeat", " or not is_grant(text, request, token)", "");
    by_an_adversary(
        "heartbeats of any request",
        SeedRange::first(1000),
        &plan,
        &edition,
        |seed, plan| but_for_exclusion(locks(seed, plan)),
    );
}

/// A key that a release grants would be free before the deadline of its waiter.
#[test]
fn short_grant_from_a_queue_is_detected() {
    let whole = "request, token, lessee), ttl)";
    let edition = edition("release", whole, "request, token, lessee), math.floor(ttl / 4))");
    on_locks("grants of a queue for a quarter of the ttl", &edition, SeedRange::first(300));
}

/// A clock steps between the two commands, so a later grant would have a smaller token.
#[test]
fn claim_without_a_transaction_is_detected() {
    let plan = Plan { clocks: Clocks::LeapAhead, ..sound(1) };
    by_an_adversary(
        "claims without a transaction",
        SeedRange::first(1000),
        &plan,
        &Edition::default().executing_at_once(),
        |seed, plan| but_for_exclusion(locks(seed, plan)),
    );
}

/// On a quorum, the control omits both the nonce and the token, since a later grant has a larger
/// token.
#[test]
fn release_of_any_nonce_is_detected() {
    let lock = edition("release", "string.sub(text, 1, 32) ~= nonce or ", "");
    on_locks("release without the nonce: lock", &lock, SeedRange::first(300));
    let unchanged = edition("release", "texts[place] == ARGV[place + 2]", "texts[place]");
    on_locks("release of any text: lock", &unchanged, SeedRange::first(300));
    let record = edition("release", "redis.call('HGET', lease, 'granted') ~= nonce or ", "");
    on_one_server("release without the nonce: record", &record, SeedRange::first(300));
    let several = edition("quorum/release", HOLDS_GRANT, " then");
    on_a_quorum("release without the nonce: quorum", &several, SeedRange::first(300));
}

/// A late heartbeat would shorten the ttl of a hand-over.
#[test]
fn heartbeats_of_a_quorum_without_numbers_are_detected() {
    let edition = edition(
        "quorum/heartbeat",
        "elseif tonumber(beat) <= tonumber(last) + past then",
        "elseif false then",
    );
    on_a_quorum("heartbeats of a quorum without numbers", &edition, SeedRange::first(1000));
}

/// Two grants would have the same token, or a later grant would have a smaller token.
#[test]
fn smaller_proposal_is_detected() {
    let edition = edition("quorum/claim", " and sub(text, 35, 50) > former", "");
    let smaller = "if sub(text, 35, 50) <= floor_of(count, time) then";
    let edition = edition.with("quorum/claim", smaller, "if false then");
    by_an_adversary(
        "smaller proposals",
        SeedRange::first(1000),
        &with_leaping_clocks(),
        &edition,
        tokens_of_a_quorum,
    );
}

/// The restored grant would replace the holder's grant on a node, and shorten a hand-over. A second
/// holder is impossible, since the nodes of a counted vote have larger counters.
#[test]
fn grant_restored_over_another_is_detected() {
    let edition = edition("quorum/restore", "if is_held(text, time) then", "if false then");
    restored_late("restored over another", SeedRange::first(1000), &edition);
}

/// The key would be granted without a holder.
#[test]
fn grant_restored_after_another_is_detected() {
    let edition = edition("quorum/restore", "if bound > token then", "if false then");
    restored_late("restored after another", SeedRange::first(200), &edition);
}

/// The key would be granted without a holder.
#[test]
fn grant_restored_after_its_release_is_detected() {
    let edition = edition("quorum/release", "    raise(key, text, least, retention)\n", "")
        .with("quorum/release", "call('SET', key, least, ", "call('SET', key, text:sub(51, 66), ")
        .with("quorum/release", "free_text(raised(text, least))", "sub(text, 51, 66)");
    restored_late("restored after its release", SeedRange::first(200), &edition);
}

fn restored_late(control: &str, seeds: SeedRange, edition: &Edition) {
    const LATE: Mishaps = &[("quorum/restore", Fault::ApplyLate(Duration::from_millis(400)))];
    let plan = Plan { mishaps: LATE, ..with_leaping_clocks() };
    by_an_adversary(control, seeds, &plan, edition, tokens_of_a_quorum);
}

/// A late withdrawal would remove a vote that a later proposal relies on.
#[test]
fn withdrawal_of_a_later_proposal_is_detected() {
    const LATE: Mishaps = &[("quorum/withdraw", Fault::ApplyLate(Duration::from_millis(150)))];
    const SILENT: &[Strike] = &[Strike::Hang, Strike::CutOff];
    let plan = Plan { strikes: SILENT, mishaps: LATE, ..sound(3) };
    let edition = edition("quorum/withdraw", " and sub(text, 35, 50) < above", "");
    let seeds = SeedRange::first(1000);
    by_an_adversary("withdrawals of any proposal", seeds, &plan, &edition, |seed, plan| {
        quorum(seed, plan, quarantined)
    });
}

/// The text of a lock contains its end. No expiry of the Redis key corrects a wrong end.
#[test]
fn lock_that_ends_early_is_detected() {
    let edition = edition("quorum/claim", " + ttl * 1000", " + ttl * 250");
    on_a_quorum("locks for a quarter of the ttl", &edition, SeedRange::first(300));
}

#[test]
fn missing_rejoin_delay_is_detected() {
    let seeds = SeedRange::first(1000).starting_with(15);
    find("no rejoin delay", seeds, |seed| quorum(seed, forgetful(), without_rejoin_delay));
}

/// A late duplicate of a released claim would be granted again.
#[test]
fn forgotten_release_of_a_claim_is_detected() {
    const LATE: Mishaps = &[("obtain", Fault::ApplyLate(Duration::from_millis(1200)))];
    let plan = Plan { mishaps: LATE, ..sound(1) };
    let edition = edition("obtain", "past[1] == nonce or past[4] == nonce", "false");
    by_an_adversary(
        "duplicates of released claims",
        SeedRange::first(200),
        &plan,
        &edition,
        one_server,
    );
}

#[test]
fn write_under_an_ended_grant_is_detected() {
    let update = edition("update", EITHER, "if not nonce then");
    without("update", &update, write_often);
    let delete = edition("delete", EITHER, "if not nonce then");
    let delete = delete.with("delete", HOLDS_LOCK, "if false then");
    without("delete", &delete, delete_often);
}

/// A late duplicate of the claim is granted again, without a holder, under another token. Only the
/// nonce is not enough for a violation, since one server grants no token twice.
#[test]
fn write_under_an_earlier_token_is_detected() {
    let update = edition("update", EITHER, "if nonce ~= ARGV[1] then");
    without("update", &update, write_often);
    let delete = edition("delete", EITHER, "if nonce ~= ARGV[1] then");
    let any_request = "if not holds_lock(text, ARGV[1], (parts_of(text)), math.huge) then";
    without("delete", &delete.with("delete", HOLDS_LOCK, any_request), delete_often);
}

const HOLDS_GRANT: &str = " and find(text, ARGV[2 * place], 1, true) == 1 then";

const EITHER: &str = "if nonce ~= ARGV[1] or token ~= ARGV[3] then";

const HOLDS_LOCK: &str = "if not holds_lock(text, ARGV[1], ARGV[2], ARGV[3]) then";

/// Delays claims and writes, so that other contenders hold the key between sending and arrival.
fn without(script: &str, edition: &Edition, write: Write<RedisStore>) {
    const LATE: Fault = Fault::ApplyLate(Duration::from_millis(1500));
    const MISHAPS: Mishaps =
        &[("claims", LATE), ("obtain", LATE), ("update", LATE), ("delete", LATE)];
    let plan = Plan { mishaps: MISHAPS, clocks: Clocks::LeapAhead, ..sound(1) };
    let control = format!("{script} without its condition");
    by_an_adversary(&control, SeedRange::first(1000), &plan, edition, |seed, plan| {
        but_for_exclusion(one_server_with(seed, plan, write))
    });
}

fn write_often<'a>(store: &'a RedisStore, lease: &'a Lease) -> BoxFuture<'a, ()> {
    async move {
        for _ in 0..8 {
            write(store, lease).await;
        }
    }
    .boxed()
}

fn delete_often<'a>(store: &'a RedisStore, lease: &'a Lease) -> BoxFuture<'a, ()> {
    async move {
        for _ in 0..8 {
            // The ledger judges whether the deletion was allowed.
            drop(store.delete(lease.grant()).await);
        }
    }
    .boxed()
}

/// Leases expire at any time. Trials check only promises that depend on no clock.
fn with_leaping_clocks() -> Plan {
    Plan { clocks: Clocks::LeapAhead, ..sound(3) }
}

fn tokens_of_a_quorum(seed: u64, plan: Plan) -> Verdict {
    but_for_exclusion(quorum(seed, plan, quarantined))
}

fn edition(script: &'static str, from: &str, to: &str) -> Edition {
    Edition::default().with(script, from, to)
}

fn on_a_quorum(control: &str, edition: &Edition, seeds: SeedRange) {
    let plan = Plan { edition: edition.clone(), ..sound(3) };
    let trial = |seed| quorum(seed, plan.clone(), quarantined);
    find(control, seeds, trial);
}

fn on_one_server(control: &str, edition: &Edition, seeds: SeedRange) {
    let plan = Plan { edition: edition.clone(), ..sound(1) };
    find(control, seeds, |seed| one_server(seed, plan.clone()));
}

/// Without writes, the key stays a lock.
fn on_locks(control: &str, edition: &Edition, seeds: SeedRange) {
    let plan = Plan { edition: edition.clone(), ..sound(1) };
    find(control, seeds, |seed| locks(seed, plan.clone()));
}

/// Expects a violation under `plan` with the scripts of `edition`, and none with the complete
/// scripts.
fn by_an_adversary(
    control: &str,
    seeds: SeedRange,
    plan: &Plan,
    edition: &Edition,
    trial: impl Fn(u64, Plan) -> Verdict + Sync,
) {
    let broken = Plan { edition: edition.clone(), ..plan.clone() };
    find(control, seeds, |seed| trial(seed, broken.clone()));
    SeedRange::fresh(30).all_hold(|seed| trial(seed, plan.clone()));
}

pub(crate) fn find(control: &str, seeds: SeedRange, trial: impl Fn(u64) -> Verdict + Sync) -> u64 {
    let found: Option<(u64, Violation)> = seeds.find_violation(trial);
    let Some((seed, violation)) = found else { panic!("{control}: no violation") };
    println!("{control}: seed {seed}: {violation}");
    seed
}

fn without_rejoin_delay(builder: RedisQuorumBuilder) -> RedisQuorumBuilder {
    quarantined(builder).without_rejoin_delay()
}

type Mishaps = &'static [(&'static str, Fault)];
