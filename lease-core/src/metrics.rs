//! The events that a locker reports, for the application's metrics.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::error;

use crate::key::LeaseKey;
use crate::lost::LossCause;

/// Receives the events of leases. Each method does nothing by default.
///
/// The locker's tasks call these methods: keep them short, and do not block. The locker logs a panic, and
/// continues. The margin at each heartbeat is the earliest warning, because it shrinks long before a lease
/// is lost.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
/// use lease_core::{LeaseKey, LossCause, Metrics};
///
/// #[derive(Debug, Default)]
/// struct Losses(AtomicU64);
///
/// impl Metrics for Losses {
///     fn lost(&self, _key: &LeaseKey, _held: Duration, _cause: LossCause) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
/// ```
pub trait Metrics: fmt::Debug + Send + Sync + 'static {
    /// A lease was obtained. The call took `waited`.
    fn obtained(&self, key: &LeaseKey, waited: Duration) {
        let _ = (key, waited);
    }

    /// A heartbeat succeeded after `latency`. When its answer arrived, `margin` was left until the
    /// deadline. This deadline lies one [trusted](crate::LeaseOptions::trusted) ttl after the claim or the
    /// previous heartbeat.
    fn heartbeat(&self, key: &LeaseKey, latency: Duration, margin: Duration) {
        let _ = (key, latency, margin);
    }

    /// A heartbeat failed, or took longer than the request timeout. `margin` was left until the deadline.
    fn heartbeat_failed(&self, key: &LeaseKey, margin: Duration) {
        let _ = (key, margin);
    }

    /// A lease was released, transferred, deleted or handed over after `held`.
    ///
    /// Also called for a grant whose caller had dropped the attempt. [`obtained`](Self::obtained)
    /// was not called for this grant.
    fn released(&self, key: &LeaseKey, held: Duration) {
        let _ = (key, held);
    }

    /// A lease was lost after `held`.
    fn lost(&self, key: &LeaseKey, held: Duration, cause: LossCause) {
        let _ = (key, held, cause);
    }
}

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
    fn obtained(&self, key: &LeaseKey, waited: Duration) {
        self.count("obtained", |metrics| metrics.obtained(key, waited));
    }

    fn heartbeat(&self, key: &LeaseKey, latency: Duration, margin: Duration) {
        self.count("heartbeat", |metrics| metrics.heartbeat(key, latency, margin));
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
