//! The runtime and the tasks of a locker's requests.
//!
//! Start with [`own_thread`], which runs a runtime on a thread of its own.

pub(crate) mod detach_on_drop;
pub(crate) mod own_thread;
pub(crate) mod requests_in_flight;
