//! The promises, one module per topic. The kit's macros list them.

pub mod adopting;
pub mod claiming;
pub mod evicting;
pub mod granting;
pub mod handles;
pub mod heartbeats;
pub mod keeping;
pub mod releasing;
pub mod reopening;
pub mod scanning;
pub mod table;
pub mod table_handles;
pub mod transferring;
pub mod updating;
