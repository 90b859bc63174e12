//! A model of the queue in which waiters of one key wait on one logical Redis server, and an exhaustive
//! search of it. A release grants the key to the next waiter in the same script. `docs/design/016` describes
//! the lock itself.
//!
//! Each request may be late for ever or overtake other requests. Each answer and each message may be late or
//! lost, and a message may overtake the answer. The messages of a paused process are only
//! late. Start with `setup` for the parameters and rules, then `state`. `queue` has the parts of the scripts
//! that use the queue, `server` the requests, `client` the actions of a client, `fault` expiry and faults.
//!
//! With wrong clocks, a lease may expire at any instant. With right clocks, it expires no earlier than the
//! holder's deadline. So no two clients hold the key, unless data are lost. In each state, `progress` checks
//! that each waiter is granted the key if no more faults happen. `controls` leaves out each rule of the
//! protocol once, and the search prints the shortest path to a broken promise.
//!
//! The usual size takes seconds. It has two clients with two requests each, and one heartbeat by one client,
//! and three clients with one or two requests each. The faults are killed clients, two flushes, a promotion,
//! evictions, reservations, hand-overs, and broken subscriptions. Each search is complete. The largest has
//! 284,640 states.
//!
//! The full size is complete, too: three clients with two requests each and a heartbeat (2,533,416 states;
//! 1,227,579 with wrong clocks), and two clients with three requests each (570,045 states; 9,043,540 with
//! wrong clocks and two heartbeats). Three clients were also searched with a flush (744,204 states), with a
//! promotion (384,308), and with waiters that are skipped (548,898):
//! `cargo test -p lease-redis --test queue_model -- --ignored --nocapture`
//!
//! The model omits four clients or more, two keys, requests that are refused for lack of memory, and two
//! masters at once. In the model, a renewal without a place enters the queue. The server refuses it. This
//! equals a lost request, which the model includes. The next nonce of that waiter is another client.
//!
//! A plain `SET NX` overtakes the queue if the lock has expired. The order is promised only among waiters in
//! the queue. After a release, a request of the same nonce that arrives late may be granted for one
//! ttl, although no process holds the lease.
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
