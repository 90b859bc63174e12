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
#[path = "../../../tests/simulation/dynamodb/expression.rs"]
mod expression;
mod fleet;
mod kcl2;
mod model;
mod owners;
#[path = "../../../lease-kinesis/tests/worker/remote_stream.rs"]
mod remote_stream;
mod rows;
mod shop;
mod tables;
mod wire;
