//! The properties file, and the settings that the daemon reads from it.
//!
//! Start reading at [`settings`], which has one field per setting. [`properties`] parses the file and
//! collects its errors. [`keys`] lists the keys that have no effect. Each other file reads one group of
//! keys.

mod credentials;
mod keys;
pub(crate) mod properties;
mod region;
pub(crate) mod settings;
pub(crate) mod start;
mod stream;
pub(crate) mod table;
