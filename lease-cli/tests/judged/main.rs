//! Random faults: processes are killed, and stores hang, die or come back. A judge in each command
//! finds two commands that run at once, and commands that outlive their lease. Start with
//! [`judge`]. Long runs set `LEASE_KILLS` or `LEASE_FAULTS`.
#![cfg(target_os = "linux")]
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
#![expect(clippy::print_stdout, reason = "figures of a run, and its seed")]

mod judge;
mod kills;
mod processes;
mod stores;
