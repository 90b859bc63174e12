//! A model.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "indices are in range by construction, and a search prints its size"
)]

mod client;
mod controls;
mod fault;
mod model;
mod normal;
mod progress;
mod queue;
mod server;
mod setup;
mod state;
mod step;
mod tests;
mod violation;

use lease_test_servers::search::search;

use model::Protocol;
use setup::{Rule, Setup};
use violation::Violation;

#[track_caller]
fn sound(what: &str, setup: &Setup) {
    keeps(&Violation::ALL, what, setup);
}

/// Asserts that no promise in `promises` is broken.
#[track_caller]
fn keeps(promises: &[Violation], what: &str, setup: &Setup) {
    let found = search(&Protocol::new(setup), promises);

    println!("{what}: {found}");
    assert!(found.violation.is_none(), "{what}: {found}");
}

#[track_caller]
fn finds(rule: Rule, violation: Violation, setup: Setup) {
    fails(violation, &format!("without {rule:?}"), &Setup { without: Some(rule), ..setup });
}

#[track_caller]
fn fails(violation: Violation, what: &str, setup: &Setup) {
    let found = search(&Protocol::new(setup), &[violation]);

    println!("{what}: {found}");
    assert!(found.violation.is_some(), "{what}: {found}");
}
