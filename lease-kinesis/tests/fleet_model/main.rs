//! A model of what workers under sessions know of each other, and an exhaustive search of it.
//!
//! See docs/design/025-fleets.md for the protocol. The model takes the claims of lease-core as atomic:
//! `lease-memory/tests/session_model` searches these. Here, processes crash, lose their sessions and start again
//! under the same names. Counters and rows are removed, claims and counts are not answered, and readers miss
//! notices. After each step, the search stops all faults, and lets the live workers tick a few times. Then one
//! live worker must read the shard, all workers must know that, and no worker may repeat a claim that is refused.
//! No worker lists all rows as an audit, and no random choice helps the ring.
//!
//! Start with `setup` for the rules, then `state`. `worker` has a tick. `controls` leaves out one rule at a time:
//! the search then prints the shortest path to a broken promise.
//!
//! The model omits requests that arrive late, and reservations. `look` reads all rows at one moment. The full
//! size: `cargo test --release -p lease-kinesis --test fleet_model -- --ignored --nocapture`.
#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "indices are in range by construction, and a search prints its size"
)]

mod controls;
mod look;
mod model;
mod setup;
mod state;
mod step;
mod store;
mod tests;
mod worker;

use lease_test_servers::search::search;
use model::Fleet;
use setup::{Rule, Setup};

#[track_caller]
fn sound(what: &str, setup: Setup) {
    let found = search(&Fleet { setup }, &state::Violation::ALL);

    println!("{what}: {found}");
    assert!(found.violation.is_none(), "{what}: {found}");
}

#[track_caller]
fn finds(rule: Rule, setup: Setup) {
    let found =
        search(&Fleet { setup: Setup { without: Some(rule), ..setup } }, &state::Violation::ALL);

    println!("without {rule:?}: {found}");
    assert!(found.violation.is_some(), "without {rule:?}: {found}");
}
