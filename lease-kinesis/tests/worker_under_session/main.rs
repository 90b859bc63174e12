//! The tests of `worker`, with workers under sessions, and tests of sessions.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod damaged;
mod faults;
mod mixed;
mod mode;
mod sessions;

#[path = "../worker/acceptance.rs"]
mod acceptance;
#[path = "../worker/batches.rs"]
mod batches;
#[path = "../worker/checkpoints.rs"]
mod checkpoints;
#[path = "../worker/fleet.rs"]
mod fleet;
#[path = "../worker/hand_overs.rs"]
mod hand_overs;
#[path = "../worker/hash_keys.rs"]
mod hash_keys;
#[path = "../worker/leaving.rs"]
mod leaving;
#[path = "../worker/limits.rs"]
mod limits;
#[path = "../worker/listing.rs"]
mod listing;
#[path = "../worker/log.rs"]
mod log;
#[path = "../worker/metrics.rs"]
mod metrics;
#[path = "../worker/missing_shards.rs"]
mod missing_shards;
#[path = "../worker/outages.rs"]
mod outages;
#[path = "../worker/partial.rs"]
mod partial;
#[path = "../worker/pending.rs"]
mod pending;
#[path = "../worker/processors.rs"]
mod processors;
#[path = "../worker/quiet.rs"]
mod quiet;
#[path = "../worker/resharding.rs"]
mod resharding;
#[path = "../worker/setting.rs"]
mod setting;
#[path = "../worker/simulated_fleet.rs"]
mod simulated_fleet;
#[path = "../worker/spans.rs"]
mod spans;
#[path = "../worker/starts.rs"]
mod starts;
