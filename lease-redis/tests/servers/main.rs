//! What befalls servers, clients and what is between them, tried on real servers: each row of the
//! table "What happens when" of the README, on one server and on a quorum, and the faults of
//! other libraries.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, and lines are how a process of its own speaks"
)]

mod access;
mod clocks;
mod holder;
mod library_faults;
mod memory_limit;
mod memory_loss;
mod minority;
mod new_keys;
mod partitions;
mod pauses;
mod pools;
mod promotion;
mod records;
mod requests;
mod reservations;
#[cfg(feature = "simulation")]
mod scripts;
mod setting;
mod shard_channels;
mod silent_hosts;
mod slots;
#[cfg(feature = "tls")]
mod tls;
