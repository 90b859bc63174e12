//! A model of the lock on one logical Redis server, and an exhaustive search of it. Each request may be late
//! for ever or overtake any other request. Answers may be late or lost. See docs/design/016-redis-locks.md.
//!
//! Start with `tenure`: who holds a key and under which token. `waiting` has the wake-ups of waiters. `pace` has
//! heartbeats of one lease with two ttls. `silence` has a waiter whose requests are served late.
//!
//! With wrong clocks, a lease may expire at any instant. With right clocks, a lease expires no earlier than
//! the holder's deadline. The tests leave out each rule of the protocol once, and the search prints the
//! shortest path to a broken promise. The full size takes minutes:
//! `cargo test -p lease-redis --test lock_model -- --ignored --nocapture`
//!
//! The model omits requests that are refused for lack of memory or for a key's type, two masters at once, and
//! tokens whose number overflows into the next millisecond.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "indices are in range by construction, and a search prints its size"
)]

mod pace;
mod silence;
mod tenure;
mod waiting;
