//! The mode of the workers: all shards of a worker are under its session.

use lease_core::LeaseKey;
use lease_kinesis::WorkerBuilder;

pub(crate) fn set(worker: WorkerBuilder) -> WorkerBuilder {
    worker.with_session()
}

/// The key whose eviction ends the lease of `shard`: the store refuses to evict a lease under a session.
pub(crate) fn evictable(_shard: &LeaseKey, worker: &str) -> LeaseKey {
    format!("shop/workers/{worker}").parse().unwrap()
}

/// A worker first writes its own row, and then its counter.
pub(crate) const OWN_WRITES: usize = 2;

/// How many of two leases of a worker end with the eviction of [`evictable`]: all end with their session.
pub(crate) const LOST_OF_TWO: usize = 2;
