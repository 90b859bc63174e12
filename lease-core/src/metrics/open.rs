//! Waiters and leases at risk, which count until they end.

use std::sync::Arc;
use std::time::Duration;

use crate::key::LeaseKey;
use crate::metrics::Metrics;
use crate::metrics::stopwatch::Stopwatch;

/// A call that waits for keys. The end of the call drops it.
pub(crate) struct OpenWait {
    metrics: Arc<dyn Metrics>,
    keys: Vec<LeaseKey>,
    start: Stopwatch,
    /// The time of the wait, if the caller has measured it.
    waited: Option<Duration>,
}

impl OpenWait {
    pub(crate) fn new(metrics: Arc<dyn Metrics>, keys: Vec<LeaseKey>, start: Stopwatch) -> Self {
        for key in &keys {
            metrics.waits(key);
        }
        Self { metrics, keys, start, waited: None }
    }

    /// Ends a wait that took `waited`.
    pub(crate) fn end_after(mut self, waited: Duration) {
        self.waited = Some(waited);
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        let waited = self.waited.unwrap_or_else(|| self.start.elapsed());
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
