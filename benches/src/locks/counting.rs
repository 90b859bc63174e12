//! Two kinds of metrics beside those of lease-metrics: none, and counters in atomic numbers. They show what the calls
//! themselves cost, and what a recorder could cost at least.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lease_core::{LeaseKey, Metrics, SECONDS_BUCKETS, StoreOperation};

/// Each event is dropped.
#[derive(Debug)]
pub(crate) struct Dropping;

impl Metrics for Dropping {}

/// Counts what lease-metrics reports of an obtain and a release, with the same buckets.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    granted: AtomicU64,
    held: AtomicI64,
    waits: Buckets,
    lengths: Buckets,
    obtains: Buckets,
    releases: Buckets,
}

#[derive(Debug, Default)]
struct Buckets {
    counts: [AtomicU64; SECONDS_BUCKETS.len()],
    nanos: AtomicU64,
}

impl Buckets {
    fn record(&self, length: Duration) {
        let seconds = length.as_secs_f64();
        let place = SECONDS_BUCKETS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Relaxed);
        }
        self.nanos.fetch_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

impl Metrics for Counting {
    fn began(&self, _key: &LeaseKey) {
        self.held.fetch_add(1, Relaxed);
    }

    fn obtained(&self, _key: &LeaseKey, waited: Duration) {
        self.granted.fetch_add(1, Relaxed);
        self.waits.record(waited);
    }

    fn store_request(&self, operation: StoreOperation, latency: Duration, _is_ok: bool) {
        match operation {
            StoreOperation::Obtain => self.obtains.record(latency),
            _ => self.releases.record(latency),
        }
    }

    fn released(&self, _key: &LeaseKey, held: Duration) {
        self.held.fetch_sub(1, Relaxed);
        self.lengths.record(held);
    }
}
