//! A model of the queue in which waiters of one key wait on one logical Redis server, and an exhaustive
//! search of it. See docs/design/018-waiting-in-turn.md.
//!
//! Start with `setup`, then `state`. `queue` has the parts of the scripts that use the queue, `server` the
//! requests, `client` the actions of a client, and `fault` expiry and faults. In each state, `progress` checks
//! that each waiter is granted the key if no more faults happen. `controls` leaves out each rule of the
//! protocol once, and the search prints the shortest path to a broken promise.
//!
//! Each request, answer and message may be late, lost, or overtake others. With wrong clocks, a lease may
//! expire at any instant. With right clocks, a lease expires no earlier than the holder's deadline.
//!
//! The full size has three clients with two requests each and a heartbeat: 2,533,416 states, and 1,227,579
//! states with wrong clocks. It also has two clients with three requests each: 570,045 states, and 9,043,540
//! states with wrong clocks and two heartbeats.
//! `cargo test -p lease-redis --test queue_model -- --ignored --nocapture`
//!
//! The model omits four clients or more, two keys, requests that are refused for lack of memory, and two
//! masters at once. It also omits the marks of locks: the lock of a plain claim that overtakes the queue has no mark
//! until the next renewal, so its release may leave the key free beside a waiter. In the model, a subscription on a
//! replica counts as closed. In the model, a renewal without a place enters the queue. The real server refuses such a
//! renewal, which equals a lost request. The order is promised only among waiters in the queue, because a
//! plain `SET NX` overtakes the queue if the lock has expired.
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
