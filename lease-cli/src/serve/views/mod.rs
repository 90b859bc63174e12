//! The views of the page: how the rows of each one are read. Start with [`leases`], which is the simplest.

pub(super) mod jobs;
pub(super) mod leases;
pub(super) mod shards;
pub(super) mod switches;
