//! Leases under a session, on real servers.
//!
//! Start with [`leases`]: lockers that hold leases under a session. A story in [`stories`] sends single
//! scripts in one order to a [`script_server`], and reads their [`replies`]. [`controls`] removes one
//! condition of a script at a time.

#[cfg(feature = "simulation")]
mod controls;
mod leases;
#[cfg(feature = "simulation")]
mod replies;
#[cfg(feature = "simulation")]
mod script_server;
#[cfg(feature = "simulation")]
mod stories;
