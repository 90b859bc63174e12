//! Schedulers in paused time: what runs, what does not, and what is left behind.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, and figures are printed"
)]

mod ahead;
mod asking;
mod breaking;
mod dying;
mod ending;
mod exporting;
mod fleets;
mod forgetful;
mod missing;
mod retrying;
mod stepping;
mod ticking;
mod timing_out;
mod warnings;
mod world;
