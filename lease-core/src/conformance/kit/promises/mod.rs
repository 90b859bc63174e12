//! The promises, one module per topic. The kit's macros list the promises.

pub mod adopting;
pub mod granting;
pub mod handles;
pub mod heartbeats;
pub mod keeping;
pub mod operating;
pub mod queueing;
pub mod records;
pub mod releasing;
pub mod reopening;
pub mod sessions;

pub use records::{claiming, table, table_handles, transferring, updating};
