//! Tests of KCL's lease tables.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that reports"
)]

mod beside_kcl2;
mod coexistence;
mod conformance;
mod fleet;
mod kcl2;
mod model;
mod owners;
mod rows;
mod shop;
mod tables;
mod wire;
