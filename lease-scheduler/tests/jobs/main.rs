//! Schedulers in paused time, on a store in memory.
//!
//! `harness.rs` starts machines and logs their bodies. Each other file tests one subject: `ticking.rs` the
//! ticks of a schedule, `commands` the commands of operators, `ending.rs` how runs end, `fleets.rs` fleets whose
//! clocks differ.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failed assumption fails the test, and figures are printed"
)]

mod ahead;
mod asking;
mod breaking;
mod commands;
mod dying;
mod ending;
#[cfg(feature = "export")]
mod export_job;
mod exporting;
mod fleets;
mod forgetful;
mod harness;
mod missing;
mod retrying;
mod stepping;
mod ticking;
mod timing_out;
