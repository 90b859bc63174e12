//! A model of leases under sessions, and an exhaustive search of it.
//!
//! See docs/design/021-sessions.md for the protocol. Workers hold sessions, and claim shards under them. A
//! sent message may arrive at any later time, any number of times, or never. Each answer may be late or
//! lost. The model has no stale reads, which prove no more than a late claim or a fresh read.
//!
//! Start with `setup` for the parameters and rules, then `state`. `controls` leaves out one rule at a time:
//! the search then prints the shortest path to a broken promise.
//!
//! The usual size takes seconds. The full size takes minutes:
//! `cargo test --release -p lease-memory --test session_model -- --ignored --nocapture`
//!
//! The model omits reservations, hand-overs, removed records, and two processes with the same session key.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "indices are in range by construction, and a search prints its size"
)]

mod controls;
mod model;
mod normal;
mod setup;
mod state;
mod step;
mod store;
mod tests;
mod worker;

use lease_test_servers::search::search;
use model::Protocol;
use setup::{Rule, Setup};
use state::Violation;

#[track_caller]
fn sound(what: &str, setup: &Setup) {
    keeps(&Violation::ALL, what, setup);
}

#[track_caller]
fn keeps(promises: &[Violation], what: &str, setup: &Setup) {
    let found = search(&Protocol::new(setup), promises);

    println!("{what}: {found}");
    assert!(found.violation.is_none(), "{what}: {found}");
}

#[track_caller]
fn finds(rule: Rule, violation: Violation, setup: Setup) {
    let found = search(&Protocol::new(&Setup { without: Some(rule), ..setup }), &[violation]);

    println!("without {rule:?}: {found}");
    assert!(found.violation.is_some(), "without {rule:?}: {found}");
}
