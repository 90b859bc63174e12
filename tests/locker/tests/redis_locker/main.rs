//! Lockers on a real Redis, in real time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod own_thread;
mod silence;
