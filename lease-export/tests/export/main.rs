//! Tests the exporter and its sinks. Most tests run twice: in memory, and on a Redis server.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by a panic"
)]

mod buckets;
mod buffers;
mod collecting;
mod collecting_failures;
mod dropped;
mod exporting;
mod failing;
mod flushing;
mod foreign;
mod full;
mod jobs;
mod locks;
mod measuring;
mod metrics;
mod operating;
mod partitioning;
mod queues;
mod refusing;
mod sending;
mod waiting;
mod wire;
mod world;
