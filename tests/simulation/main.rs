//! Random trials of the real locker, with heartbeats and waiting, on models of every store. Time is
//! virtual. Each run tries new seeds, and prints a failing seed with the command that repeats it.
//! At full size:
//! `LEASE_SEEDS=100000 cargo test --release -p lease-simulation-tests --test simulation -- --nocapture`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test panics, and prints its figures"
)]

mod dynamodb;
mod job;
mod memory;
mod redis;
mod session_job;
