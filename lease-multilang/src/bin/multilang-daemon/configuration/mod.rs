//! The properties file, and the settings that the daemon reads from it. Start with [`settings`].

mod credentials;
mod keys;
pub(crate) mod properties;
mod region;
pub(crate) mod settings;
pub(crate) mod start;
mod stream;
pub(crate) mod table;
