//! Schedulers in paused time, on a store in memory. `harness.rs` starts machines and logs their
//! bodies.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a failed assumption fails the test, and figures are printed"
)]

mod ahead;
mod asking;
mod breaking;
mod dying;
mod ending;
mod exporting;
mod fleets;
mod forgetful;
mod harness;
mod missing;
mod retrying;
mod stepping;
mod ticking;
mod timing_out;
