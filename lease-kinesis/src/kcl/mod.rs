//! The lease tables of the Kinesis Client Library (KCL), as they are: rows, conditions, liveness.
//!
//! What is known of them is from the sources of KCL 1, 2 and 3
//! ([awslabs/amazon-kinesis-client](https://github.com/awslabs/amazon-kinesis-client),
//! `leases/dynamodb/`).

mod beside;
mod config;
mod row;
mod schema;
mod sight;
mod store;
mod table;
mod write;

pub(crate) use beside::{Beside, Look};
pub use config::KclTableBuilder;
pub use store::KclTable;

#[cfg(test)]
mod golden;
