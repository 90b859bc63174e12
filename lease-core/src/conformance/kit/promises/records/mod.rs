//! The promises of a [`LeaseTable`](crate::store::LeaseTable): records with attributes.
//!
//! Start with [`table`], which has the promises about creating, reading and listing records.

pub mod claiming;
pub mod table;
pub mod table_handles;
pub mod transferring;
pub mod updating;
