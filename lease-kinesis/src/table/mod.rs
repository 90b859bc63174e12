//! The rows of a lease table that belong to shards. Start with `row`.

pub(crate) mod lifecycle;
pub(crate) mod row;
pub(crate) mod snapshot;
pub(crate) mod sync;
