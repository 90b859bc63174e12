//! Faults of servers, clients and networks, with real servers. Each row of the README's table "What
//! happens when" is tested on one server and on a quorum.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a failed setup fails the test, and a child process reports by lines"
)]

mod access;
mod batches;
mod claimed;
mod clocks;
mod holder;
mod in_turn;
mod in_turn_kills;
mod in_turn_scripts;
mod library_faults;
mod majority_first;
mod membership;
mod memory_limit;
mod memory_loss;
mod minority;
mod new_keys;
mod partitions;
mod pauses;
mod pools;
mod promotion;
mod racing;
mod records;
mod requests;
mod reservations;
#[cfg(feature = "simulation")]
mod scripts;
mod sessions;
mod setting;
mod shard_channels;
mod silent_hosts;
mod slots;
#[cfg(feature = "tls")]
mod tls;
mod upgrade;
