//! The store on live servers: what it keeps, what it costs, and what it does when the network,
//! the clocks and other programs misbehave.
//!
//! Comments such as `S1.f3` name the row of the systems before this one that a test answers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod acceptance;
mod adopting;
mod contention;
mod errors;
mod faults;
mod lock_client;
mod network;
mod purging;
mod requests;
mod schema;
mod takeover;
mod world;
