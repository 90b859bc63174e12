//! Each metric through the SDK of OpenTelemetry, with its exporter in memory.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_core::{LeaseKey, Locker};
use lease_memory::MemoryStore;
use lease_opentelemetry::LeaseMeter;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(30);

struct Exported {
    provider: SdkMeterProvider,
    exporter: InMemoryMetricExporter,
}

impl Exported {
    fn new() -> Self {
        let exporter = InMemoryMetricExporter::default();
        let reader = PeriodicReader::builder(exporter.clone()).build();
        Self { provider: SdkMeterProvider::builder().with_reader(reader).build(), exporter }
    }

    /// The values of counters, and the counts of histograms, by `name attribute=value`.
    fn values(&self) -> BTreeMap<String, i64> {
        self.provider.force_flush().unwrap();
        let mut values = BTreeMap::new();
        let exported = self.exporter.get_finished_metrics().unwrap();
        let last = exported.last().unwrap();
        for metric in last.scope_metrics().flat_map(ScopeMetrics::metrics) {
            let mut add = |attributes: Vec<&KeyValue>, value: i64| {
                let mut all: Vec<_> =
                    attributes.iter().map(|one| format!(" {}={}", one.key, one.value)).collect();
                all.sort();
                values.insert(format!("{}{}", metric.name(), all.concat()), value);
            };
            match metric.data() {
                AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                    for point in sum.data_points() {
                        add(point.attributes().collect(), i64::try_from(point.value()).unwrap());
                    }
                }
                AggregatedMetrics::I64(MetricData::Sum(sum)) => {
                    sum.data_points()
                        .for_each(|point| add(point.attributes().collect(), point.value()));
                }
                AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                    for point in histogram.data_points() {
                        add(point.attributes().collect(), i64::try_from(point.count()).unwrap());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        values
    }
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_metric_is_exported() {
    let exported = Exported::new();
    let metrics = LeaseMeter::builder("memory")
        .with_group("leader", |key| key.as_str() == "leader")
        .build(&exported.provider.meter("leases"));
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone()).with_metrics(Arc::new(metrics));
    assert_eq!(exported.values()["lease_lost_total cause=revoked group=leader"], 0);

    let leader = locker.wait_until_obtained(&key("leader")).await.unwrap();
    assert!(locker.obtain(&key("leader")).await.unwrap().into_lease().is_none());
    let waiter = locker.clone();
    let _waiting = tokio::spawn(async move { waiter.wait_until_obtained(&key("leader")).await });
    let job = locker.obtain(&key("job")).await.unwrap().into_lease().unwrap();
    job.release().await.unwrap();
    sleep(TTL).await;
    let holder = locker.holder(&key("leader")).await.unwrap().unwrap();
    store.every(Call::Heartbeat, Fault::Fail);
    sleep(TTL / 2).await;

    let values = exported.values();
    let expected = [
        ("lease_obtain_total group=leader result=granted", 1),
        ("lease_obtain_total group=leader result=held", 1),
        ("lease_obtain_total group=other result=error", 0),
        ("lease_wait_seconds group=leader", 1),
        ("lease_held_seconds end=released group=other", 1),
        ("lease_held group=leader", 1),
        ("lease_held group=other", 0),
        ("lease_waiters group=leader", 1),
        ("lease_at_risk group=leader", 1),
        ("lease_store_request_seconds operation=holder result=ok store=memory", 1),
    ];
    for (name, value) in expected {
        assert_eq!(values.get(name), Some(&value), "{name}: {values:#?}");
    }
    for name in [
        "lease_heartbeat_seconds",
        "lease_heartbeat_margin_ratio group=leader",
        "lease_heartbeat_failures_total group=leader",
        "lease_store_request_seconds operation=heartbeat result=error store=memory",
    ] {
        assert!(values.get(name).is_some_and(|count| *count > 0), "{name}: {values:#?}");
    }

    store.heal();
    store.inner().evict(&key("leader"), &holder.grant.unwrap()).await.unwrap();
    drop(leader.lost().await);
    let values = exported.values();
    assert_eq!(values["lease_lost_total cause=revoked group=leader"], 1);
    assert_eq!(values["lease_held_seconds end=lost group=leader"], 1);
    assert_eq!(values["lease_at_risk group=leader"], 0);
}
