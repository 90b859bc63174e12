//! The store on live servers: promises, costs and faults.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod acceptance;
mod adopting;
mod claiming;
mod contention;
mod errors;
mod faults;
mod lock_client;
mod network;
mod purging;
mod requests;
mod schema;
mod sessions;
mod setup;
mod takeover;
