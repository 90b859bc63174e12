//! Negative controls. Each control removes a condition that exclusion requires, and expects a
//! violation.

use std::time::Duration;

use lease_core::conformance::{Call, SeedRange, Trial};

use super::setup::{Breach, Setup};
use super::{BY_OBSERVATION, BY_SERVER_TIME, FEW, SEEDS, find, find_in, hold, report, trial, ttl};

#[test]
fn claim_of_a_held_key_is_detected() {
    expect_violation_without("held keys are free", Call::Obtain, &["attribute_not_exists(lessee)"]);
}

#[test]
fn condition_checked_before_its_write_is_detected() {
    find("check and write apart", &Setup::sound(BY_SERVER_TIME).breaking(Breach::ChecksApart));
}

#[test]
fn release_of_another_grant_is_detected() {
    expect_violation_without("release by any lessee", Call::Release, &[NONCE, LESSEE, TOKEN]);
    expect_violation_without(
        "release by a former grant of the same lessee",
        Call::Release,
        &[NONCE, TOKEN],
    );
}

/// A late heartbeat writes its old beat again. A contender that observed this beat earlier now
/// considers the lease expired.
#[test]
fn late_heartbeat_is_detected() {
    let setup = service_without(Call::Heartbeat, &["beat < :beat"]);
    find_in("heartbeats in any order", SeedRange::first(FEW).starting_with(63), &setup);
}

#[test]
fn heartbeat_of_another_grant_is_detected() {
    let seeds = SeedRange::first(FEW).starting_with(71);
    let by_any_lessee = service_without(Call::Heartbeat, &[NONCE, LESSEE, TOKEN]);
    find_in("heartbeat by any lessee", seeds.clone(), &by_any_lessee);
    let by_same_lessee = service_without(Call::Heartbeat, &[NONCE, TOKEN]);
    find_in("heartbeat by a former grant of the same lessee", seeds, &by_same_lessee);
}

#[test]
fn write_under_an_ended_grant_is_detected() {
    expect_violation_without("write by any lessee", Call::Write, &[NONCE, LESSEE, TOKEN]);
}

/// Before the write, a late duplicate of the writer's claim was granted under another token.
#[test]
fn write_under_an_earlier_token_is_detected() {
    expect_violation_without("write under any token", Call::Write, &[TOKEN]);
}

#[test]
fn adoption_of_another_grant_is_detected() {
    const GRANT: &[&str] =
        &["nonce = :handed", "lessee = :former_lessee", "#token = :former_token"];
    let seeds = SeedRange::first(FEW).starting_with(135);
    find_in("adoption by any lessee", seeds, &service_without(Call::Adopt, GRANT));
}

/// For a release, a heartbeat and an adoption, either condition alone is sufficient:
///
/// - A token is granted once, so a request with the token also has the nonce.
/// - A late duplicate of a claim is granted under the same nonce with another token, but no
///   contender holds this grant.
///
/// A write also needs the condition on the token, since the next holder would read the late write
/// of a former grant.
#[test]
fn nonce_or_token_alone_is_sufficient() {
    const HANDED: &str = "nonce = :handed";
    const FORMER: &str = "#token = :former_token";
    let parts: [(_, _, &'static [&'static str]); 6] = [
        ("release by token alone", Call::Release, &[NONCE]),
        ("release by nonce alone", Call::Release, &[TOKEN]),
        ("heartbeat by token alone", Call::Heartbeat, &[NONCE]),
        ("heartbeat by nonce alone", Call::Heartbeat, &[TOKEN]),
        ("adoption by token alone", Call::Adopt, &[HANDED]),
        ("adoption by nonce alone", Call::Adopt, &[FORMER]),
    ];
    for (what, call, parts) in parts {
        let setup = Setup::sound(BY_SERVER_TIME).breaking(Breach::Assumes(call, parts));
        hold(what, SEEDS / 4, &setup);
    }
}

#[test]
fn claim_without_the_observed_beat_is_detected() {
    expect_violation_without(
        "claim although the beat changed",
        Call::Obtain,
        &["beat = :seen_beat"],
    );
}

#[test]
fn claim_without_the_observed_token_is_detected() {
    expect_violation_without(
        "claim although the token changed",
        Call::Obtain,
        &["#token = :seen_token"],
    );
}

#[test]
fn observation_shorter_than_the_ttl_is_detected() {
    let setup = Setup::sound(BY_OBSERVATION).breaking(Breach::HastyStores(1.5));
    find("observed for two thirds of the ttl", &setup);
}

#[test]
fn clock_rates_beyond_the_assumption_are_detected() {
    let setup = Setup::sound(BY_OBSERVATION);
    let found = SeedRange::first(FEW)
        .find_violation(|seed| trial(Trial::new(seed).with_clock_rates(0.1), ttl(seed), &setup));
    report("clocks 10 % off", found);
}

#[test]
fn claim_before_expiry_is_detected() {
    expect_violation_without("claim before expiry", Call::Obtain, &["expires_at <= :over"]);
}

#[test]
fn server_time_without_margin_is_detected() {
    let setup = Setup { margin: Duration::ZERO, ..Setup::sound(BY_SERVER_TIME) };
    find("no margin", &setup);
}

fn expect_violation_without(control: &str, call: Call, parts: &'static [&'static str]) {
    find(control, &service_without(call, parts));
}

fn service_without(call: Call, parts: &'static [&'static str]) -> Setup {
    Setup::sound(BY_SERVER_TIME).breaking(Breach::Assumes(call, parts))
}

const NONCE: &str = "nonce = :nonce";
const LESSEE: &str = "lessee = :lessee";
const TOKEN: &str = "#token = :token";
