//! Lease tables of the Kinesis Client Library: what every store promises, what KCL does to a row, and
//! fleets of both.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that reports"
)]

mod conformance;
mod fleet;
mod kcl2;
mod model;
mod owners;
mod rows;
mod shop;
mod tables;
mod wire;
