//! The properties file, and the settings that the daemon reads from it.
//!
//! Start reading at [`settings`], which has one field per setting. [`properties`] parses the file and
//! collects its errors. [`keys`] lists the keys without effect here. The other files read one group of
//! keys each.

mod credentials;
mod keys;
pub(crate) mod properties;
mod region;
pub(crate) mod settings;
pub(crate) mod start;
mod stream;
pub(crate) mod table;
