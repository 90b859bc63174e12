//! What the promises rest on, taken away one by one: trials have to notice.
//!
//! Some of it matters only where several things go wrong together. Such a control has a plan of
//! its own that makes them likely, an adversary, and sees that nothing is found by it otherwise.

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

/// A former holder's heartbeat would keep the next one's grant alive, and count for itself.
#[test]
fn a_heartbeat_of_any_nonce_is_found() {
    let edition = edition("heartbeat", "held[1] ~= nonce or ", "");
    on_a_quorum("heartbeats without the nonce", &edition, SeedRange::first(300));
}

/// A late heartbeat would undo how long a hand-over waits.
#[test]
fn heartbeats_without_numbers_are_found() {
    let edition =
        edition("heartbeat", "if tonumber(held[3]) >= tonumber(sequence) then", "if false then");
    on_one_server("heartbeats without numbers", &edition, SeedRange::first(1000));
}

#[test]
fn a_release_of_any_nonce_is_found() {
    let holds = "redis.call('HGET', lease, 'granted') ~= nonce or ";
    let one = edition("release", holds, "");
    on_one_server("release without the nonce: one server", &one, SeedRange::first(300));
    let several = edition("release", "if stands == nonce then", "if stands then");
    on_a_quorum("release without the nonce: quorum", &several, SeedRange::first(300));
}

/// Two grants would be given one token.
#[test]
fn tokens_that_are_not_written_back_are_found() {
    let edition = edition(
        "raise",
        "redis.call('HSET', lease, 'counted', ARGV[2])\n\
         raise_counter(lease, tonumber(ARGV[2]))\n",
        "",
    );
    on_a_quorum("no write-back", &edition, SeedRange::first(1000));
}

/// Two grants would be given one token: a node's vote is over, another has the key there, and
/// what comes late makes its vote look larger than it was.
#[test]
fn tokens_that_are_written_back_to_anybody_are_found() {
    const LATE: Mishaps = &[("raise", Fault::DelayRequest(Duration::from_millis(80)))];
    let plan = Plan { mishaps: LATE, ..in_no_time() };
    let edition =
        edition("raise", "if standing(lease) ~= ARGV[1] then", "if not standing(lease) then");
    let seeds = SeedRange::first(200).starting_with(6);
    by_an_adversary("write-back without its guard", seeds, &plan, &edition, tokens_of_a_quorum);
}

/// It is in the way of whoever has the key there, and undoes how long a hand-over waits. Nobody
/// holds the key twice for it: a vote that was counted on is on a node that counted further.
#[test]
fn a_grant_put_back_over_another_is_found() {
    let edition = edition("restore", "if standing(lease)\n    or ", "if ");
    put_back_late("put back over another", SeedRange::first(200), &edition);
}

/// The key would be taken for nobody.
#[test]
fn a_grant_put_back_after_another_is_found() {
    let condition = "\n    or is_followed(lease, ARGV[1], tonumber(ARGV[3]))";
    let edition = edition("restore", condition, "");
    put_back_late("put back after another", SeedRange::first(200), &edition);
}

/// The key would be taken for nobody.
#[test]
fn a_grant_put_back_after_its_release_is_found() {
    let edition = edition("restore", "\n    or is_given_up(lease, ARGV[1])", "");
    let seeds = SeedRange::first(200).starting_with(39);
    put_back_late("put back after its release", seeds, &edition);
}

fn put_back_late(control: &str, seeds: SeedRange, edition: &Edition) {
    const LATE: Mishaps = &[("restore", Fault::ApplyLate(Duration::from_millis(400)))];
    let plan = Plan { mishaps: LATE, ..in_no_time() };
    by_an_adversary(control, seeds, &plan, edition, tokens_of_a_quorum);
}

/// A vote that is taken back late would be missing where a later round counts on it.
///
/// A claim withdraws from all nodes only if some node has not answered, so nodes hang and are cut off.
#[test]
fn a_round_that_takes_back_later_ones_is_found() {
    const LATE: Mishaps = &[("withdraw", Fault::ApplyLate(Duration::from_millis(150)))];
    const SILENT: &[Strike] = &[Strike::Hang, Strike::CutOff];
    let plan = Plan { strikes: SILENT, mishaps: LATE, ..sound(3) };
    let edition = edition("withdraw", " or (tonumber(past[1]) or 0) > tonumber(ARGV[2])", "");
    let seeds = SeedRange::first(200).starting_with(66);
    by_an_adversary("rounds without numbers", seeds, &plan, &edition, |seed, plan| {
        quorum(seed, plan, quarantined)
    });
}

/// Servers that forgot would count once more from where they began.
#[test]
fn a_time_of_long_ago_that_is_counted_from_is_found() {
    let near = "uptime > 1 and math.abs(proposed - now()) < 100000 then\n        return proposed";
    let edition = edition("obtain", near, "true then\n        return 1");
    let plan = Plan { edition, ..forgetful() };
    let seeds = SeedRange::first(1000).starting_with(54);
    find("a time of long ago", seeds, |seed| quorum(seed, plan.clone(), quarantined));
}

#[test]
fn servers_that_forgot_and_vote_at_once_are_found() {
    let seeds = SeedRange::first(1000).starting_with(15);
    find("no quarantine", seeds, |seed| quorum(seed, forgetful(), unquarantined));
}

/// What was released would be taken again by a late duplicate of its claim.
#[test]
fn a_claim_that_is_forgotten_after_its_release_is_found() {
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
fn a_write_under_a_grant_that_is_over_is_found() {
    without("update", EITHER, "if not nonce then", write_often);
    without("delete", EITHER, "if not nonce then", delete_often);
}

/// A late duplicate of its claim was granted the key again, for nobody, under another token.
///
/// The nonce alone may be left out: on one server no token is granted twice, so it says the same.
#[test]
fn a_write_under_an_earlier_token_is_found() {
    without("update", EITHER, "if nonce ~= ARGV[1] then", write_often);
    without("delete", EITHER, "if nonce ~= ARGV[1] then", delete_often);
}

const EITHER: &str = "if nonce ~= ARGV[1] or token ~= ARGV[2] then";

/// Claims and writes come so late that others have had the key in between.
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
            // Whether it was applied is for the ledger to judge.
            drop(store.delete(lease.grant()).await);
        }
    }
    .boxed()
}

/// Leases run out at any time, so only what rests on no clock is asked for.
fn in_no_time() -> Plan {
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

/// Sees that `plan` finds what `edition` leaves out; and that it finds nothing in the scripts as
/// they are.
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

/// Answers with which seed it is found.
pub(crate) fn find(control: &str, seeds: SeedRange, trial: impl Fn(u64) -> Verdict + Sync) -> u64 {
    let found: Option<(u64, Violation)> = seeds.find_violation(trial);
    let Some((seed, violation)) = found else { panic!("{control}: nothing is found") };
    println!("{control}: seed {seed}: {violation}");
    seed
}

fn unquarantined(builder: RedisQuorumBuilder) -> RedisQuorumBuilder {
    quarantined(builder).without_rejoin_delay()
}

type Mishaps = &'static [(&'static str, Fault)];
