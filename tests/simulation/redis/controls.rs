//! Negative controls: each removes one part of a script, and expects a violation.
//!
//! Some parts matter only if several faults coincide. The control of such a part uses an adversarial plan,
//! which makes these faults likely. The same plan must find no violation in the complete scripts.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lease_core::Lease;
use lease_core::conformance::{Fault, SeedRange, Verdict, Violation};
use lease_core::store::LeaseTable;
use lease_redis::{RedisQuorumBuilder, RedisStore};

use super::fleet::{Clocks, Plan, Strike};
use super::scripts::Edition;
use super::{
    but_for_exclusion, forgetful, one_server, one_server_with, quarantined, quorum, sound, write,
};
use crate::job::Write;

/// A former holder's heartbeat would extend the next holder's grant, and return that its own is extended.
#[test]
fn heartbeat_of_any_nonce_is_detected() {
    let edition = edition("heartbeat", "held[1] ~= nonce or ", "");
    on_a_quorum("heartbeats without the nonce", &edition, SeedRange::first(300));
}

/// A late heartbeat would shorten the ttl of a hand-over.
#[test]
fn heartbeats_without_numbers_are_detected() {
    let edition =
        edition("heartbeat", "if tonumber(held[3]) >= tonumber(sequence) then", "if false then");
    on_one_server("heartbeats without numbers", &edition, SeedRange::first(1000));
}

#[test]
fn release_of_any_nonce_is_detected() {
    let holds = "redis.call('HGET', lease, 'granted') ~= nonce or ";
    let one = edition("release", holds, "");
    on_one_server("release without the nonce: one server", &one, SeedRange::first(300));
    let several = edition("release", "if stands == nonce then", "if stands then");
    on_a_quorum("release without the nonce: quorum", &several, SeedRange::first(300));
}

/// Two grants would have one token.
#[test]
fn tokens_without_write_back_are_detected() {
    let edition = edition(
        "raise",
        "redis.call('HSET', lease, 'counted', ARGV[2])\n\
         raise_counter(lease, tonumber(ARGV[2]))\n",
        "",
    );
    on_a_quorum("no write-back", &edition, SeedRange::first(1000));
}

/// Two grants would have one token. A node's vote has expired, and another grant has the key there. The late
/// write-back then raises the token of that other grant.
#[test]
fn write_back_to_another_grant_is_detected() {
    const LATE: Mishaps = &[("raise", Fault::DelayRequest(Duration::from_millis(80)))];
    let plan = Plan { mishaps: LATE, ..with_leaping_clocks() };
    let edition =
        edition("raise", "if standing(lease) ~= ARGV[1] then", "if not standing(lease) then");
    let seeds = SeedRange::first(200).starting_with(6);
    by_an_adversary("write-back without its guard", seeds, &plan, &edition, tokens_of_a_quorum);
}

/// The restored grant would replace the holder's grant on that node, and shorten a hand-over. There is no
/// second holder, since the nodes of a counted vote have larger counters.
#[test]
fn grant_restored_over_another_is_detected() {
    let edition = edition("restore", "if standing(lease)\n    or ", "if ");
    restored_late("restored over another", SeedRange::first(200), &edition);
}

/// The key would be granted without a holder.
#[test]
fn grant_restored_after_another_is_detected() {
    let condition = "\n    or is_followed(lease, ARGV[1], tonumber(ARGV[3]))";
    let edition = edition("restore", condition, "");
    restored_late("restored after another", SeedRange::first(200), &edition);
}

/// The key would be granted without a holder.
#[test]
fn grant_restored_after_its_release_is_detected() {
    let edition = edition("restore", "\n    or is_given_up(lease, ARGV[1])", "");
    let seeds = SeedRange::first(200).starting_with(39);
    restored_late("restored after its release", seeds, &edition);
}

fn restored_late(control: &str, seeds: SeedRange, edition: &Edition) {
    const LATE: Mishaps = &[("restore", Fault::ApplyLate(Duration::from_millis(400)))];
    let plan = Plan { mishaps: LATE, ..with_leaping_clocks() };
    by_an_adversary(control, seeds, &plan, edition, tokens_of_a_quorum);
}

/// A late withdrawal would remove a vote that a later round relies on.
///
/// A claim withdraws from all nodes only if some node has not answered, so nodes hang and are partitioned.
#[test]
fn withdrawal_of_a_later_round_is_detected() {
    const LATE: Mishaps = &[("withdraw", Fault::ApplyLate(Duration::from_millis(150)))];
    const SILENT: &[Strike] = &[Strike::Hang, Strike::CutOff];
    let plan = Plan { strikes: SILENT, mishaps: LATE, ..sound(3) };
    let edition = edition("withdraw", " or (tonumber(past[1]) or 0) > tonumber(ARGV[2])", "");
    let seeds = SeedRange::first(200).starting_with(66);
    by_an_adversary("rounds without numbers", seeds, &plan, &edition, |seed, plan| {
        quorum(seed, plan, quarantined)
    });
}

/// Servers that lost their data would start their counters at the same value again.
#[test]
fn counter_that_starts_in_the_past_is_detected() {
    let near = "uptime > 1 and math.abs(proposed - now()) < 100000 then\n        return proposed";
    let edition = edition("obtain", near, "true then\n        return 1");
    let plan = Plan { edition, ..forgetful() };
    let seeds = SeedRange::first(1000).starting_with(54);
    find("counter starts in the past", seeds, |seed| quorum(seed, plan.clone(), quarantined));
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
    without("update", EITHER, "if not nonce then", write_often);
    without("delete", EITHER, "if not nonce then", delete_often);
}

/// A late duplicate of the claim is granted again, without a holder, under another token.
///
/// No control omits the nonce alone: one server grants no token twice, so the token is sufficient.
#[test]
fn write_under_an_earlier_token_is_detected() {
    without("update", EITHER, "if nonce ~= ARGV[1] then", write_often);
    without("delete", EITHER, "if nonce ~= ARGV[1] then", delete_often);
}

const EITHER: &str = "if nonce ~= ARGV[1] or token ~= ARGV[2] then";

/// Delays claims and writes, so that other contenders hold the key in between.
fn without(script: &'static str, condition: &str, rest: &str, write: Write<RedisStore>) {
    const LATE: Fault = Fault::ApplyLate(Duration::from_millis(1500));
    const MISHAPS: Mishaps = &[("obtain", LATE), ("update", LATE), ("delete", LATE)];
    let plan = Plan { mishaps: MISHAPS, clocks: Clocks::LeapAhead, ..sound(1) };
    let control = format!("{script} with {rest:?}");
    let edition = edition(script, condition, rest);
    by_an_adversary(&control, SeedRange::first(200), &plan, &edition, |seed, plan| {
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

/// Leases expire at any time, so a trial checks only promises that depend on no clock.
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

/// Expects a violation under `plan` with the scripts of `edition`, and none with the complete scripts.
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

/// Returns the first seed with a violation.
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
