//! Where a locker's tasks run.
//!
//! Start with [`locker_runtime`]: it starts the heartbeater on a tokio runtime and runs requests there.
//! [`own_thread`] is a runtime on a thread of its own. [`detach_on_drop`] finishes a request whose caller
//! is gone, and [`requests_in_flight`] counts the requests that `Locker::close` waits for.

pub(crate) mod detach_on_drop;
pub(crate) mod locker_runtime;
pub(crate) mod own_thread;
pub(crate) mod requests_in_flight;
