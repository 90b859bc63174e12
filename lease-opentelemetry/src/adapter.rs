//! The adapter between a locker's events and a meter of OpenTelemetry.

use std::time::Duration;

use lease_core::{KeyGroups, LeaseKey, LossCause, Metrics, StoreOperation};
use opentelemetry::metrics::Meter;
use opentelemetry::{KeyValue, StringValue};

use crate::instruments::Instruments;

/// Reports the events of a locker to a meter of OpenTelemetry.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lease_core::Locker;
/// use lease_memory::MemoryStore;
/// use lease_opentelemetry::LeaseMeter;
///
/// let metrics = LeaseMeter::builder("memory")
///     .with_group("payroll", |key| key.as_str().starts_with("payroll/"))
///     .build(&opentelemetry::global::meter("leases"));
/// let locker = Locker::new(MemoryStore::new()).with_metrics(Arc::new(metrics));
/// # drop(locker);
/// ```
#[derive(Debug)]
pub struct LeaseMeter {
    instruments: Instruments,
    groups: KeyGroups<KeyValue>,
    store: KeyValue,
}

/// Sets up a [`LeaseMeter`].
///
/// # Examples
///
/// ```
/// use lease_opentelemetry::LeaseMeter;
///
/// let metrics = LeaseMeter::builder("redis")
///     .with_group("leader", |key| key.as_str() == "leader")
///     .with_group("shards", |key| key.as_str().starts_with("shards/"))
///     .build(&opentelemetry::global::meter("leases"));
/// # drop(metrics);
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct LeaseMeterBuilder {
    store: StringValue,
    /// `None` until a group is added.
    groups: Option<KeyGroups<StringValue>>,
}

impl LeaseMeter {
    /// Returns an adapter whose keys are all in the group `all`. `store` is an attribute of the requests, such as
    /// `redis`.
    pub fn new(store: impl Into<StringValue>, meter: &Meter) -> Self {
        Self::builder(store).build(meter)
    }

    /// Returns a builder of an adapter with groups of keys.
    pub fn builder(store: impl Into<StringValue>) -> LeaseMeterBuilder {
        LeaseMeterBuilder { store: store.into(), groups: None }
    }

    fn group(&self, key: &LeaseKey) -> KeyValue {
        self.groups.of(key).clone()
    }

    fn count_call(&self, key: &LeaseKey, result: &'static str) {
        self.instruments.obtain.add(1, &[self.group(key), KeyValue::new("result", result)]);
    }

    fn end(&self, key: &LeaseKey, held: Duration, end: &'static str) {
        let group = self.group(key);
        self.instruments.held.add(-1, std::slice::from_ref(&group));
        self.instruments.held_for.record(held.as_secs_f64(), &[group, KeyValue::new("end", end)]);
    }
}

impl LeaseMeterBuilder {
    /// Adds a group: the value `name` of the attribute `group`. A key belongs to the first group that `selects`
    /// it, or else to the group `other`. So the number of time series does not depend on the number of keys.
    pub fn with_group(
        mut self,
        name: impl Into<StringValue>,
        selects: impl Fn(&LeaseKey) -> bool + Send + Sync + 'static,
    ) -> Self {
        let groups = self.groups.unwrap_or_else(|| KeyGroups::new("other".into()));
        self.groups = Some(groups.with(selects, name.into()));
        self
    }

    /// Builds the adapter, and reports its counters as zero to `meter`.
    #[must_use]
    pub fn build(self, meter: &Meter) -> LeaseMeter {
        let instruments = Instruments::of(meter);
        let groups = self.groups.unwrap_or_else(|| KeyGroups::new("all".into()));
        let groups = groups.map(|name| {
            let group = KeyValue::new("group", name);
            report_zeros(&instruments, &group);
            group
        });
        LeaseMeter { instruments, groups, store: KeyValue::new("store", self.store) }
    }
}

/// Without them, an alarm could not distinguish a counter at zero from a missing one.
fn report_zeros(instruments: &Instruments, group: &KeyValue) {
    let alone = std::slice::from_ref(group);
    for result in ["granted", "held", "error"] {
        instruments.obtain.add(0, &[group.clone(), KeyValue::new("result", result)]);
    }
    for cause in LossCause::ALL {
        instruments.lost.add(0, &[group.clone(), KeyValue::new("cause", cause.name())]);
    }
    instruments.heartbeat_failures.add(0, alone);
    for gauge in [&instruments.held, &instruments.waiters, &instruments.at_risk] {
        gauge.add(0, alone);
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl Metrics for LeaseMeter {
    fn began(&self, key: &LeaseKey) {
        self.instruments.held.add(1, &[self.group(key)]);
    }

    fn refused(&self, key: &LeaseKey) {
        self.count_call(key, "held");
    }

    fn failed(&self, key: &LeaseKey) {
        self.count_call(key, "error");
    }

    fn waits(&self, key: &LeaseKey) {
        self.instruments.waiters.add(1, &[self.group(key)]);
    }

    fn stopped_waiting(&self, key: &LeaseKey, _waited: Duration) {
        self.instruments.waiters.add(-1, &[self.group(key)]);
    }

    fn at_risk(&self, key: &LeaseKey) {
        self.instruments.at_risk.add(1, &[self.group(key)]);
    }

    fn recovered(&self, key: &LeaseKey) {
        self.instruments.at_risk.add(-1, &[self.group(key)]);
    }

    fn store_request(&self, operation: StoreOperation, latency: Duration, is_ok: bool) {
        let result = if is_ok { "ok" } else { "error" };
        let attributes = [
            self.store.clone(),
            KeyValue::new("operation", operation.name()),
            KeyValue::new("result", result),
        ];
        self.instruments.store_request.record(latency.as_secs_f64(), &attributes);
    }

    fn obtained(&self, key: &LeaseKey, waited: Duration) {
        self.count_call(key, "granted");
        self.instruments.wait.record(waited.as_secs_f64(), &[self.group(key)]);
    }

    fn heartbeat(&self, key: &LeaseKey, latency: Duration, margin: Duration, trusted: Duration) {
        self.instruments.heartbeat.record(latency.as_secs_f64(), &[]);
        let ratio = margin.as_secs_f64() / trusted.as_secs_f64();
        self.instruments.margin.record(ratio, &[self.group(key)]);
    }

    fn heartbeat_failed(&self, key: &LeaseKey, _margin: Duration) {
        self.instruments.heartbeat_failures.add(1, &[self.group(key)]);
    }

    fn released(&self, key: &LeaseKey, held: Duration) {
        self.end(key, held, "released");
    }

    fn lost(&self, key: &LeaseKey, held: Duration, cause: LossCause) {
        self.end(key, held, "lost");
        let attributes = [self.group(key), KeyValue::new("cause", cause.name())];
        self.instruments.lost.add(1, &attributes);
    }
}
