//! `PostgresStore` on a real server: the order of requests, invalid rows, faults of the server.
//! [`setting`] makes a store, [`control`] breaks one.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed setup fails the test"
)]

mod batches;
mod clocks;
mod conditions;
mod control;
mod faults;
mod in_turn;
mod in_turn_controls;
mod listening;
mod locks;
mod records;
mod rows;
mod sabotage;
mod sessions;
mod setting;
mod tls;
mod tokens;
