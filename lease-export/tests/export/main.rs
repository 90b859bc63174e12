//! The exporter on each place where its parts can be kept: in memory, and on a real Redis; and its
//! sinks over HTTP.
//!
//! Each story is told once, and runs on both.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod buckets;
mod buffers;
mod collecting;
mod dropped;
mod exporting;
mod failing;
mod flushing;
mod foreign;
mod full;
mod jobs;
mod locks;
mod operating;
mod pouring;
mod queues;
mod refusing;
mod sending;
mod wire;
mod world;
