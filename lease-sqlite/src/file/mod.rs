//! The file: the checks before a store uses it, and during its use.
//!
//! Start with [`opening`]. [`network`] refuses network file systems. [`schema`] creates the tables, or checks
//! who owns the file. [`identity`] notices that the file was removed or replaced. [`settings`] has the
//! settings that all connections of one store share.

pub(crate) mod identity;
mod network;
pub(crate) mod opening;
mod schema;
pub(crate) mod settings;
