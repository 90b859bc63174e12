//! Runs the daemon as a process, with children in several languages.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot continue fails"
)]

mod child_faults;
mod daemon;
mod languages;
mod launchers;
mod measured;
mod metrics;
mod moving;
mod notes;
mod place;
mod starting;
mod stopping;
mod terminal;
mod usage;
