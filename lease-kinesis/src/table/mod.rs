//! The rows of a lease table that belong to shards.
//!
//! Start with `row`, which reads and writes one row. `lifecycle` decides which shards need a row,
//! and where reading starts. `snapshot` is one listing of the table, parsed. `sync` lists the
//! stream's shards, creates the missing rows and removes the obsolete ones.

pub(crate) mod lifecycle;
pub(crate) mod row;
pub(crate) mod snapshot;
pub(crate) mod sync;
