//! The events that a locker reports, for the application's metrics.
//!
//! Start with [`Metrics`]. [`StoreOperation`] names the requests to a store. [`KeyGroups`] and `buckets` help adapters.
//! [`guarded`] protects the locker from the application's metrics. [`open`] counts waiters and leases at risk, and counts them out when they end.
//! [`stopwatch`] measures calls.

mod buckets;
mod groups;
pub(crate) mod guarded;
pub(crate) mod open;
mod operation;
pub(crate) mod stopwatch;

use std::fmt;
use std::time::Duration;

pub use buckets::{RATIO_BUCKETS, SECONDS_BUCKETS};
pub use groups::KeyGroups;
pub use operation::StoreOperation;

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
    /// A lease began. Exactly one call of [`released`](Self::released) or [`lost`](Self::lost) follows, unless
    /// the locker's runtime ends before. So the difference is the number of leases that are held now.
    fn began(&self, key: &LeaseKey) {
        let _ = key;
    }

    /// A call found the key held, and returned no lease. Attempts of calls that wait are not reported.
    fn refused(&self, key: &LeaseKey) {
        let _ = key;
    }

    /// A call ended with an error, and returned no lease. A call for several keys reports each key.
    fn failed(&self, key: &LeaseKey) {
        let _ = key;
    }

    /// A call waits for the key. Exactly one call of [`stopped_waiting`](Self::stopped_waiting) follows.
    fn waits(&self, key: &LeaseKey) {
        let _ = key;
    }

    /// A call has obtained the key, ended with an error, or was dropped, after `waited`.
    fn stopped_waiting(&self, key: &LeaseKey, waited: Duration) {
        let _ = (key, waited);
    }

    /// A lease is [at risk](crate::LeaseState::AtRisk). Exactly one call of [`recovered`](Self::recovered)
    /// follows.
    fn at_risk(&self, key: &LeaseKey) {
        let _ = key;
    }

    /// A lease is no longer at risk: a heartbeat succeeded, or the lease has ended.
    fn recovered(&self, key: &LeaseKey) {
        let _ = key;
    }

    /// The store answered a request after `latency`, with an error if `is_ok` is false. A refused claim is no error.
    ///
    /// A batch of heartbeats counts as one request. Watches and the requests of a `LeaseTable` are not reported.
    fn store_request(&self, operation: StoreOperation, latency: Duration, is_ok: bool) {
        let _ = (operation, latency, is_ok);
    }

    /// A lease was obtained, and the caller has it. The call took `waited`.
    fn obtained(&self, key: &LeaseKey, waited: Duration) {
        let _ = (key, waited);
    }

    /// A heartbeat succeeded after `latency`. When its answer arrived, `margin` was left until the
    /// deadline. This deadline lies one `trusted` ttl, as [`LeaseOptions::trusted`](crate::LeaseOptions::trusted)
    /// computes it, after the claim or the previous heartbeat.
    fn heartbeat(&self, key: &LeaseKey, latency: Duration, margin: Duration, trusted: Duration) {
        let _ = (key, latency, margin, trusted);
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
