//! Waiters and leases at risk, which count until they end.

use std::sync::Arc;

use crate::clock::{Clock, Moment};
use crate::key::LeaseKey;
use crate::metrics::Metrics;

/// A call that waits for keys. The end of the call drops it.
pub(crate) struct OpenWait {
    metrics: Arc<dyn Metrics>,
    clock: Arc<dyn Clock>,
    keys: Vec<LeaseKey>,
    start: Moment,
}

impl OpenWait {
    pub(crate) fn new(
        metrics: Arc<dyn Metrics>,
        clock: Arc<dyn Clock>,
        keys: Vec<LeaseKey>,
        start: Moment,
    ) -> Self {
        for key in &keys {
            metrics.waits(key);
        }
        Self { metrics, clock, keys, start }
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        let waited = self.clock.now().since(self.start);
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
