//! Tests of KCL's lease tables: the promises of every store, KCL's writes to a row, and mixed fleets.
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
