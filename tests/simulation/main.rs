//! Random trials of the real locker, heartbeats and waiting, over models of every store.
//!
//! Time is virtual, so thousands of trials take seconds. Each run tries seeds that were never
//! tried before; one that fails is printed with the command that runs it again. At full size:
//! `LEASE_SEEDS=100000 cargo test --release -p lease-simulation-tests --test simulation -- --nocapture`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that reports"
)]

mod dynamodb;
mod job;
mod memory;
mod redis;
