//! The threads of a store. SQLite's calls block, so no call runs on a thread of the application's runtime.
//!
//! Start with [`writer`], which runs requests that arrive at the same time in one transaction. [`reader`] answers
//! reads and polls for watched keys. [`queue`] hands requests to a thread, and [`watches`] keeps the waiters.

pub(crate) mod queue;
pub(crate) mod reader;
pub(crate) mod watches;
pub(crate) mod writer;
