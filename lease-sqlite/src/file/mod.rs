//! The file: what is checked before a store uses it, and while it does.
//!
//! Start with [`opening`]. [`network`] refuses network file systems, [`schema`] creates the tables or checks
//! whose file it is, and [`identity`] notices that the file was removed or replaced. [`settings`] is what the
//! connections of one store share.

pub(crate) mod identity;
mod network;
pub(crate) mod opening;
mod schema;
pub(crate) mod settings;
