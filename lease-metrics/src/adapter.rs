//! The adapter between a locker's events and the `metrics` facade.

use std::fmt;
use std::time::Duration;

use lease_core::{KeyGroups, LeaseKey, LossCause, Metrics, StoreOperation};
use metrics::SharedString;

use crate::instruments::{GroupInstruments, StoreInstruments};
use crate::names;

/// Reports the events of a locker to the recorder of the `metrics` facade.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lease_core::Locker;
/// use lease_memory::MemoryStore;
/// use lease_metrics::LeaseMetrics;
///
/// // First install a recorder, such as that of metrics-exporter-prometheus.
/// let metrics = LeaseMetrics::builder("memory")
///     .with_group("payroll", |key| key.as_str().starts_with("payroll/"))
///     .build();
/// let locker = Locker::new(MemoryStore::new()).with_metrics(Arc::new(metrics));
/// # drop(locker);
/// ```
pub struct LeaseMetrics {
    groups: KeyGroups<GroupInstruments>,
    store: StoreInstruments,
}

/// Sets up [`LeaseMetrics`].
///
/// # Examples
///
/// ```
/// use lease_metrics::LeaseMetrics;
///
/// let metrics = LeaseMetrics::builder("redis")
///     .with_group("leader", |key| key.as_str() == "leader")
///     .with_group("shards", |key| key.as_str().starts_with("shards/"))
///     .build();
/// # drop(metrics);
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct LeaseMetricsBuilder {
    store: SharedString,
    /// `None` until a group is added.
    groups: Option<KeyGroups<SharedString>>,
}

impl LeaseMetrics {
    /// Returns an adapter whose keys are all in the group `all`. `store` is a label of the requests, such as
    /// `redis`.
    ///
    /// The adapter registers all metrics with the recorder that is installed now: install the recorder before.
    pub fn new(store: impl Into<SharedString>) -> Self {
        Self::builder(store).build()
    }

    /// Returns a builder of an adapter with groups of keys.
    pub fn builder(store: impl Into<SharedString>) -> LeaseMetricsBuilder {
        LeaseMetricsBuilder { store: store.into(), groups: None }
    }

    fn of(&self, key: &LeaseKey) -> &GroupInstruments {
        self.groups.of(key)
    }
}

impl LeaseMetricsBuilder {
    /// Adds a group: the value `name` of the label `group`. A key belongs to the first group that `selects` it, or
    /// else to the group `other`. So the number of time series does not depend on the number of keys.
    pub fn with_group(
        mut self,
        name: impl Into<SharedString>,
        selects: impl Fn(&LeaseKey) -> bool + Send + Sync + 'static,
    ) -> Self {
        let groups = self.groups.unwrap_or_else(|| KeyGroups::new("other".into()));
        self.groups = Some(groups.with(selects, name.into()));
        self
    }

    /// Builds the adapter, and registers all metrics with the recorder that is installed now.
    #[must_use]
    pub fn build(self) -> LeaseMetrics {
        names::describe();
        let groups = self.groups.unwrap_or_else(|| KeyGroups::new("all".into()));
        LeaseMetrics {
            groups: groups.map(|name| GroupInstruments::register(&name)),
            store: StoreInstruments::register(&self.store),
        }
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl Metrics for LeaseMetrics {
    fn began(&self, key: &LeaseKey) {
        self.of(key).held.increment(1);
    }

    fn refused(&self, key: &LeaseKey) {
        self.of(key).refused.increment(1);
    }

    fn failed(&self, key: &LeaseKey) {
        self.of(key).failed.increment(1);
    }

    fn waits(&self, key: &LeaseKey) {
        self.of(key).waiters.increment(1);
    }

    fn stopped_waiting(&self, key: &LeaseKey, _waited: Duration) {
        self.of(key).waiters.decrement(1);
    }

    fn at_risk(&self, key: &LeaseKey) {
        self.of(key).at_risk.increment(1);
    }

    fn recovered(&self, key: &LeaseKey) {
        self.of(key).at_risk.decrement(1);
    }

    fn store_request(&self, operation: StoreOperation, latency: Duration, is_ok: bool) {
        self.store.record(operation, latency.as_secs_f64(), is_ok);
    }

    fn obtained(&self, key: &LeaseKey, waited: Duration) {
        let group = self.of(key);
        group.granted.increment(1);
        group.wait_seconds.record(waited.as_secs_f64());
    }

    fn heartbeat(&self, key: &LeaseKey, latency: Duration, margin: Duration, trusted: Duration) {
        self.store.heartbeat_seconds.record(latency.as_secs_f64());
        self.of(key).margin_ratio.record(margin.as_secs_f64() / trusted.as_secs_f64());
    }

    fn heartbeat_failed(&self, key: &LeaseKey, _margin: Duration) {
        self.of(key).heartbeat_failures.increment(1);
    }

    fn released(&self, key: &LeaseKey, held: Duration) {
        let group = self.of(key);
        group.held.decrement(1);
        group.released_seconds.record(held.as_secs_f64());
    }

    fn lost(&self, key: &LeaseKey, held: Duration, cause: LossCause) {
        let group = self.of(key);
        group.held.decrement(1);
        group.lost_seconds.record(held.as_secs_f64());
        group.count_loss(cause);
    }
}

impl fmt::Debug for LeaseMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseMetrics").finish_non_exhaustive()
    }
}
