//! Lease tables of the Kinesis Client Library: what every store promises, and what KCL does.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod rows;
