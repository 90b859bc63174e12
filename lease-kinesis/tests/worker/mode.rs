//! The mode of the workers: each worker lists all rows at each tick.

use lease_core::LeaseKey;
use lease_kinesis::WorkerBuilder;

pub(crate) fn set(worker: WorkerBuilder) -> WorkerBuilder {
    worker
}

/// The key whose eviction ends the lease of `shard`.
pub(crate) fn evictable(shard: &LeaseKey, _worker: &str) -> LeaseKey {
    shard.clone()
}

/// A worker first writes its own row.
pub(crate) const OWN_WRITES: usize = 1;

/// How many of two leases of a worker end with the eviction of [`evictable`].
pub(crate) const LOST_OF_TWO: usize = 1;
