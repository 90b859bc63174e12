//! Negative controls: each takes one thing away that exclusion rests on, and sees it found.

use std::time::Duration;

use lease_core::conformance::{Call, SeedRange, Trial};

use super::setup::{Breach, Setup};
use super::{BY_OBSERVATION, BY_SERVER_TIME, FEW, SEEDS, find, find_in, hold, report, trial, ttl};

#[test]
fn a_claim_of_a_key_that_somebody_has_is_found() {
    assuming("held keys are free", Call::Obtain, &["attribute_not_exists(#lessee)"]);
}

#[test]
fn a_condition_checked_before_its_write_is_found() {
    find("check and write apart", &Setup::sound(BY_SERVER_TIME).breaking(Breach::ChecksApart));
}

#[test]
fn a_release_of_what_another_has_is_found() {
    assuming("release by anybody", Call::Release, &[NONCE, LESSEE, TOKEN]);
    assuming("release by whoever was its lessee", Call::Release, &[NONCE, TOKEN]);
}

/// An old one takes the number back, and the beat that somebody once saw seems to have lasted.
#[test]
fn a_heartbeat_that_comes_late_is_found() {
    let setup = assumes(Call::Heartbeat, &["#beat < :beat"]);
    find_in("heartbeats in any order", SeedRange::first(FEW).starting_with(63), &setup);
}

#[test]
fn a_heartbeat_of_what_another_has_is_found() {
    let seeds = SeedRange::first(FEW).starting_with(71);
    let by_any_lessee = assumes(Call::Heartbeat, &[NONCE, LESSEE, TOKEN]);
    find_in("heartbeat by any lessee", seeds.clone(), &by_any_lessee);
    let by_same_lessee = assumes(Call::Heartbeat, &[NONCE, TOKEN]);
    find_in("heartbeat by a former grant of the same lessee", seeds, &by_same_lessee);
}

#[test]
fn a_write_under_a_grant_that_is_over_is_found() {
    assuming("write by anybody", Call::Write, &[NONCE, LESSEE, TOKEN]);
}

/// A late duplicate of its claim was granted the key again, under another token.
#[test]
fn a_write_under_an_earlier_token_is_found() {
    assuming("write under any token", Call::Write, &[TOKEN]);
}

#[test]
fn an_adoption_of_what_another_has_is_found() {
    const GRANT: &[&str] =
        &["#nonce = :handed", "#lessee = :former_lessee", "#token = :former_token"];
    let seeds = SeedRange::first(FEW).starting_with(135);
    find_in("adoption by any lessee", seeds, &assumes(Call::Adopt, GRANT));
}

/// So neither is found missing by itself, and both are, above: a token is granted once, so who
/// knows it is who has its nonce; and what a late duplicate is granted under the same nonce, with
/// another token, nobody holds. A write is no such case: whoever comes next reads it.
#[test]
fn nonce_and_token_stand_in_for_each_other() {
    const HANDED: &str = "#nonce = :handed";
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
fn a_beat_that_is_not_compared_with_the_one_seen_is_found() {
    assuming("taken although it beats", Call::Obtain, &["#beat = :seen_beat"]);
}

#[test]
fn a_token_that_is_not_compared_with_the_one_seen_is_found() {
    assuming("taken although it is another's", Call::Obtain, &["#token = :seen_token"]);
}

#[test]
fn a_watch_that_is_too_short_is_found() {
    let setup = Setup::sound(BY_OBSERVATION).breaking(Breach::HastyStores(1.5));
    find("watched for two thirds of the ttl", &setup);
}

#[test]
fn clocks_of_machines_that_break_the_assumption_are_found() {
    let setup = Setup::sound(BY_OBSERVATION);
    let found = SeedRange::first(FEW)
        .find_violation(|seed| trial(Trial::new(seed).with_clock_rates(0.1), ttl(seed), &setup));
    report("clocks 10 % off", found);
}

#[test]
fn an_expiry_that_is_not_compared_with_the_time_is_found() {
    assuming("taken before it is over", Call::Obtain, &["#expires_at <= :over"]);
}

#[test]
fn server_time_without_its_margin_is_found() {
    let setup = Setup { margin: Duration::ZERO, ..Setup::sound(BY_SERVER_TIME) };
    find("no margin", &setup);
}

/// Takes `parts` of the condition of every such call for fulfilled.
fn assuming(control: &str, call: Call, parts: &'static [&'static str]) {
    find(control, &assumes(call, parts));
}

/// A service that takes `parts` of the condition of every such call for fulfilled.
fn assumes(call: Call, parts: &'static [&'static str]) -> Setup {
    Setup::sound(BY_SERVER_TIME).breaking(Breach::Assumes(call, parts))
}

const NONCE: &str = "#nonce = :nonce";
const LESSEE: &str = "#lessee = :lessee";
const TOKEN: &str = "#token = :token";
