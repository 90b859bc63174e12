//! Searches schedules of two contenders for one key, with the real store, up to a limit.
//!
//! `world.rs` has the register: each request waits in it until the search applies it, loses it, loses its answer,
//! delays it or doubles it. `contender.rs` is what each contender does. `search.rs` runs the contenders once for
//! each sequence of choices that reaches a new state. After each run, a third lessee must obtain the key.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::large_enum_variant,
    clippy::print_stdout,
    reason = "a test panics, and prints its figures"
)]

mod contender;
mod search;
mod world;

use lease_register::Versions;

use crate::search::{Found, search};
use crate::world::{Breach, Setup};

const SOUND: Setup =
    Setup { versions: Versions::Opaque, breach: None, faults: 1, ticks: 3, deletions: 0 };

#[test]
fn two_contenders_exclude_each_other() {
    hold("opaque versions", &SOUND);
    hold("growing versions", &Setup { versions: Versions::Growing, ..SOUND });
}

/// Nothing prevents two holders after a deletion by hand. But a fence still refuses the first one.
#[test]
fn growing_tokens_grow_over_deletions() {
    let deleting =
        Setup { versions: Versions::Growing, faults: 0, deletions: 1, ticks: 1, ..SOUND };

    hold("growing versions with a deletion", &deleting);
    find("tokens", &Setup { breach: Some(Breach::VersionsRestart), ..deleting });
}

#[test]
fn replacement_without_version_is_detected() {
    find("two holders", &Setup { breach: Some(Breach::IgnoresVersions), ..SOUND });
}

#[test]
fn replacement_of_old_content_is_detected() {
    find("two holders", &Setup { breach: Some(Breach::VersionIsContent), ..SOUND });
}

#[test]
fn observation_shorter_than_the_ttl_is_detected() {
    find("two holders", &Setup { breach: Some(Breach::HastyClock), ..SOUND });
}

#[test]
fn expiry_by_another_machines_clock_is_detected() {
    find("two holders", &Setup { breach: Some(Breach::ForeignClock), ..SOUND });
}

#[test]
fn heartbeat_that_changes_no_number_is_detected() {
    find("two holders", &Setup { breach: Some(Breach::KeepsTheBeat), ..SOUND });
}

fn hold(what: &str, setup: &Setup) {
    match search(setup) {
        Found::Nothing { runs, states } => println!("{what}: {runs} runs, {states} states"),
        Found::Violation { runs, what: violation } => {
            panic!("{what}: in run {runs}: {violation}")
        }
    }
}

fn find(violation: &str, setup: &Setup) {
    // No breach needs a fault.
    match search(&Setup { faults: 0, ..*setup }) {
        Found::Violation { runs, what } => {
            println!("{:?}: in run {runs}: {what}", setup.breach);
            assert!(what.contains(violation), "{what}");
        }
        Found::Nothing { states, .. } => {
            panic!("{:?}: no violation in {states} states", setup.breach)
        }
    }
}
