//! The settings that a locker, its leases and its tasks share. They never change.
//!
//! [`Settings`] has the store, the options and the clock. [`random`] makes nonces and jitter, [`backoff`]
//! pauses between attempts, and [`watchdog`] checks that the application calls `Locker::alive`.

pub(crate) mod backoff;
pub(crate) mod random;
pub(crate) mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span, debug_span};

use crate::clock::{BootClock, Clock, Moment, sleep_until};
use crate::error::StoreError;
use crate::key::Lessee;
use crate::metrics::guarded::Uncounted;
use crate::metrics::stopwatch::Stopwatch;
use crate::metrics::{Metrics, StoreOperation};
use crate::options::LeaseOptions;
use crate::session::membership::Membership;
use crate::settings::random::Random;
use crate::settings::watchdog::Watchdog;
use crate::store::attributes::Attributes;
use crate::store::lock_store::LockStore;
use crate::store::time_limit::within;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) lessee: Lessee,
    pub(crate) options: LeaseOptions,
    pub(crate) attributes: Attributes,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
    pub(crate) metrics: Arc<dyn Metrics>,
    pub(crate) has_metrics: bool,
    pub(crate) watchdog: Option<Arc<Watchdog>>,
    pub(crate) session: Option<Arc<Membership>>,
}

impl Settings {
    pub(crate) fn new(store: Arc<dyn LockStore>) -> Self {
        let random = Random::from_entropy();
        Self {
            store,
            lessee: Lessee::of_this_process(random.salt()),
            options: LeaseOptions::default(),
            attributes: Attributes::new(),
            clock: Arc::new(BootClock),
            random: Arc::new(random),
            metrics: Arc::new(Uncounted),
            has_metrics: false,
            watchdog: None,
            session: None,
        }
    }

    /// Sends a request of one key, for at most a [request timeout](LeaseOptions::request_timeout).
    pub(crate) async fn ask<T>(
        &self,
        operation: StoreOperation,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.ask_within(self.options.request_timeout(), operation, answer).await
    }

    pub(crate) async fn ask_within<T>(
        &self,
        limit: Duration,
        operation: StoreOperation,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = answer.instrument(request_span(operation));
        if !self.has_metrics {
            return within(limit, answer).await;
        }
        let sent = Stopwatch::start();
        let answer = within(limit, answer).await;
        self.metrics.store_request(operation, sent.elapsed(), answer.is_ok());
        answer
    }

    /// Sends a request of one key at `sent`, a reading of the clock. With metrics, also returns the moment of the
    /// answer, so that the caller need not read the clock again.
    pub(crate) async fn ask_at<T>(
        &self,
        sent: Moment,
        operation: StoreOperation,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> (Result<T, StoreError>, Option<Moment>) {
        let answer = answer.instrument(request_span(operation));
        let answer = within(self.options.request_timeout(), answer).await;
        let answered = self.has_metrics.then(|| self.clock.now());
        if let Some(answered) = answered {
            self.metrics.store_request(operation, answered.since(sent), answer.is_ok());
        }
        (answer, answered)
    }

    /// How long ago the application called `Locker::alive`, if longer than the watchdog's limit.
    pub(crate) fn silence(&self, now: Moment) -> Option<Duration> {
        self.watchdog.as_ref()?.silence(now)
    }

    pub(crate) fn trusted(&self, ttl: Duration) -> Duration {
        self.options.trusted(ttl, self.store.grain())
    }

    pub(crate) async fn sleep(&self, length: Duration) {
        if length.is_zero() {
            return;
        }
        let until = self.clock.now() + length;
        sleep_until(&*self.clock, until, self.options.heartbeat_period()).await;
    }
}

fn request_span(operation: StoreOperation) -> Span {
    debug_span!("store_request", operation = operation.name())
}
