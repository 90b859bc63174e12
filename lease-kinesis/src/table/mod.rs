//! The rows of a lease table that belong to shards.
//!
//! Start with `row`, which reads and writes one row. `lifecycle` decides which shards need a row,
//! and where reading starts. `snapshot` lists the table and parses its rows. `sync` lists the
//! stream's shards, creates missing rows and removes obsolete rows. `ended_rows` keeps the leases of ended
//! shards, beside workers of another library. `metered` counts the requests to the table.

pub(crate) mod ended_rows;
pub(crate) mod lifecycle;
pub(crate) mod metered;
pub(crate) mod row;
pub(crate) mod snapshot;
pub(crate) mod sync;
