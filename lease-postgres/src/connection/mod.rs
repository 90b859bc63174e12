//! Connections to the server.
//!
//! Start with [`database`], which sends requests through a pool. [`batches`] joins requests that wait for a
//! connection. [`address`] reads the URL. [`checks`]
//! refuses servers and tables with unsafe settings. [`listener`] receives the notifications of releases, for
//! the waiters in [`waiters`], and of grants, for the queued claims in [`grants`]. [`tls`] encrypts
//! connections.

pub(crate) mod address;
pub(crate) mod batches;
pub(crate) mod checks;
pub(crate) mod database;
mod grants;
pub(crate) mod listener;
pub(crate) mod tls;
mod waiters;
