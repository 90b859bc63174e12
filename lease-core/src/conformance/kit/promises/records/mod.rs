//! The promises of a [`LeaseTable`](crate::store::LeaseTable): records with attributes.
//!
//! Start with [`table`]: creating, reading and listing.

pub mod claiming;
pub mod table;
pub mod table_handles;
pub mod transferring;
pub mod updating;
