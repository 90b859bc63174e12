//! The threads of a store, because SQLite's calls block.
//!
//! Start with [`writer`], which runs requests that arrive at the same time in one transaction. [`reader`]
//! answers reads, and polls for watched keys. [`queue`] hands requests to a thread, and [`watches`] keeps the
//! waiters.

pub(crate) mod queue;
pub(crate) mod reader;
pub(crate) mod watches;
pub(crate) mod writer;
