//! The real program: its exit codes, its signals, its output. Start with [`place`], which starts
//! the program on its own store.
#![cfg(target_os = "linux")]
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod clocks;
mod doctor;
mod exits;
mod jobs;
mod leaving;
mod listing;
mod losing;
mod operating;
mod place;
mod running;
#[cfg(feature = "kinesis")]
mod shards;
mod signals;
mod steps;
mod terminal;
