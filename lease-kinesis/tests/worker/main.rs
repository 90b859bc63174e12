//! Real workers in virtual time.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod acceptance;
mod batches;
mod checkpoints;
mod fleet;
mod hand_overs;
mod hash_keys;
mod leaving;
mod limits;
mod listing;
mod log;
mod metrics;
mod missing_shards;
mod mode;
mod outages;
mod partial;
mod pending;
mod processors;
mod quiet;
mod resharding;
mod setting;
mod simulated_fleet;
mod spans;
mod starts;
