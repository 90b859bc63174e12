//! Waiters and leases at risk, which count until they end.

use std::sync::Arc;

use crate::key::LeaseKey;
use crate::metrics::Metrics;
use crate::metrics::stopwatch::Stopwatch;

/// A call that waits for keys. The end of the call drops it.
pub(crate) struct OpenWait {
    metrics: Arc<dyn Metrics>,
    keys: Vec<LeaseKey>,
    start: Stopwatch,
}

impl OpenWait {
    pub(crate) fn new(metrics: Arc<dyn Metrics>, keys: Vec<LeaseKey>) -> Self {
        for key in &keys {
            metrics.waits(key);
        }
        Self { metrics, keys, start: Stopwatch::start() }
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        let waited = self.start.elapsed();
        for key in &self.keys {
            self.metrics.stopped_waiting(key, waited);
        }
    }
}

/// A lease at risk. The next successful heartbeat, or the end of the lease, drops it.
pub(crate) struct OpenRisk {
    metrics: Arc<dyn Metrics>,
    key: LeaseKey,
}

impl OpenRisk {
    pub(crate) fn new(metrics: Arc<dyn Metrics>, key: LeaseKey) -> Self {
        metrics.at_risk(&key);
        Self { metrics, key }
    }
}

impl Drop for OpenRisk {
    fn drop(&mut self) {
        self.metrics.recovered(&self.key);
    }
}
