//! Metrics whose panics do not reach the locker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::error;

use crate::key::LeaseKey;
use crate::lost::LossCause;
use crate::metrics::{Metrics, StoreOperation};

/// A locker without metrics.
#[derive(Debug)]
pub(crate) struct Uncounted;

impl Metrics for Uncounted {}

/// The application's metrics. A panic in a method ends no task of the locker.
#[derive(Debug)]
pub(crate) struct Guarded(pub(crate) Arc<dyn Metrics>);

impl Guarded {
    fn count(&self, call: &'static str, count: impl FnOnce(&dyn Metrics)) {
        if catch_unwind(AssertUnwindSafe(|| count(&*self.0))).is_err() {
            error!(call, "metrics panicked");
        }
    }
}

// Each method must be forwarded: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl Metrics for Guarded {
    fn began(&self, key: &LeaseKey) {
        self.count("began", |metrics| metrics.began(key));
    }

    fn refused(&self, key: &LeaseKey) {
        self.count("refused", |metrics| metrics.refused(key));
    }

    fn failed(&self, key: &LeaseKey) {
        self.count("failed", |metrics| metrics.failed(key));
    }

    fn waits(&self, key: &LeaseKey) {
        self.count("waits", |metrics| metrics.waits(key));
    }

    fn stopped_waiting(&self, key: &LeaseKey, waited: Duration) {
        self.count("stopped_waiting", |metrics| metrics.stopped_waiting(key, waited));
    }

    fn at_risk(&self, key: &LeaseKey) {
        self.count("at_risk", |metrics| metrics.at_risk(key));
    }

    fn recovered(&self, key: &LeaseKey) {
        self.count("recovered", |metrics| metrics.recovered(key));
    }

    fn store_request(&self, operation: StoreOperation, latency: Duration, is_ok: bool) {
        self.count("store_request", |metrics| metrics.store_request(operation, latency, is_ok));
    }

    fn obtained(&self, key: &LeaseKey, waited: Duration) {
        self.count("obtained", |metrics| metrics.obtained(key, waited));
    }

    fn heartbeat(&self, key: &LeaseKey, latency: Duration, margin: Duration, trusted: Duration) {
        self.count("heartbeat", |metrics| metrics.heartbeat(key, latency, margin, trusted));
    }

    fn heartbeat_failed(&self, key: &LeaseKey, margin: Duration) {
        self.count("heartbeat_failed", |metrics| metrics.heartbeat_failed(key, margin));
    }

    fn released(&self, key: &LeaseKey, held: Duration) {
        self.count("released", |metrics| metrics.released(key, held));
    }

    fn lost(&self, key: &LeaseKey, held: Duration, cause: LossCause) {
        self.count("lost", |metrics| metrics.lost(key, held, cause));
    }
}
