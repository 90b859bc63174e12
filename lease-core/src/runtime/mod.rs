//! The runtime and the tasks of a locker's requests.
//!
//! Start with [`own_thread`]: a runtime on a thread of its own. [`detach_on_drop`] finishes a request
//! that its caller dropped. [`requests_in_flight`] counts the requests that `Locker::close` waits for.

pub(crate) mod detach_on_drop;
pub(crate) mod own_thread;
pub(crate) mod requests_in_flight;
