//! A model of the lock on one logical Redis server, and an exhaustive search of it. Each request may be
//! late for ever or overtake any other request. Answers may be late or lost. `docs/design/016` describes
//! this protocol, and `RedisStore` implements it.
//!
//! The model has four parts. Start with `tenure`:
//! - `tenure`: who holds a key and under which token. Claims with repeated requests, heartbeats,
//!   releases, evictions, hand-overs, batches of two keys, expiry, and loss of data.
//! - `waiting`: how waiters wake up. Subscriptions, marks, messages, and the time left.
//! - `pace`: heartbeats of one lease, with two different ttls.
//! - `silence`: a waiter whose requests are served late.
//!
//! With wrong clocks, a lease may expire at any instant. With right clocks, it expires no earlier than the
//! holder's deadline. The tests leave out each rule of the protocol once, and the search prints the shortest
//! path to a broken promise. The usual size takes seconds. The full size takes minutes:
//! `cargo test -p lease-redis --test lock_model -- --ignored --nocapture`
//!
//! The model omits requests that are refused for lack of memory or for a key's type, two masters at once,
//! and tokens whose number overflows into the next millisecond.
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
