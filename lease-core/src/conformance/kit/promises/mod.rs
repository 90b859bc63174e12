//! The promises, one module per topic. The kit's macros list them.

pub mod adopting;
pub mod claiming;
pub mod granting;
pub mod handles;
pub mod heartbeats;
pub mod keeping;
pub mod operating;
pub mod queueing;
pub mod releasing;
pub mod reopening;
pub mod table;
pub mod table_handles;
pub mod transferring;
pub mod updating;
