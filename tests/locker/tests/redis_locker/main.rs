//! Lockers on a real Redis, in real time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod own_thread;
mod silence;
