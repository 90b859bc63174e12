//! The metrics of a locker, and the queries of the dashboard.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_core::{Lease, LeaseKey, LeaseOptions, Locker, LossCause, StoreError};
use lease_memory::MemoryStore;
use lease_metrics::{ExporterMetrics, KinesisMetrics, LeaseMetrics, SchedulerMetrics};
use lease_test_servers::port::free_port;
use lease_test_servers::prometheus::PrometheusServer;
use metrics_exporter_prometheus::PrometheusRecorder;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::{builder, series};

fn metrics_on(recorder: &PrometheusRecorder) -> LeaseMetrics {
    metrics::with_local_recorder(recorder, || {
        LeaseMetrics::builder("memory")
            .with_group("leader", |key| key.as_str() == "leader")
            .with_group("jobs", |key| key.as_str().starts_with("jobs/"))
            .build()
    })
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}

/// What keeps its state until the test ends.
struct Kept {
    _leader: Lease,
    _waiting: JoinHandle<Result<Lease, StoreError>>,
}

/// Causes each event but a lease at risk.
async fn cause_events(locker: &Locker, store: &Faulty<MemoryStore>) -> Kept {
    let leader = locker.wait_until_obtained(&key("leader")).await.unwrap();
    assert!(locker.obtain(&key("leader")).await.unwrap().into_lease().is_none());
    let waiter = locker.clone();
    let waiting = tokio::spawn(async move { waiter.wait_until_obtained(&key("leader")).await });

    let released = locker.obtain(&key("jobs/1")).await.unwrap().into_lease().unwrap();
    released.release().await.unwrap();
    store.next(Call::Obtain, Fault::Fail);
    assert!(locker.obtain(&key("jobs/2")).await.is_err());
    let lost = locker.obtain(&key("jobs/3")).await.unwrap().into_lease().unwrap();
    let holder = locker.holder(&key("jobs/3")).await.unwrap().unwrap();
    store.inner().evict(&key("jobs/3"), &holder.grant.unwrap()).await.unwrap();
    assert_eq!(lost.lost().await.cause, LossCause::Revoked);
    Kept { _leader: leader, _waiting: waiting }
}

#[tokio::test]
async fn each_metric_is_scraped() {
    let port = free_port();
    let address = ([127, 0, 0, 1], port);
    let (recorder, exporter) = builder().with_http_listener(address).build().unwrap();
    let _exporting = tokio::spawn(exporter);
    let store = Faulty::new(MemoryStore::new());
    let ttl = LeaseOptions::new(Duration::from_secs(60)).unwrap();
    let options = ttl.with_heartbeats_per_ttl(60).unwrap();
    let metrics = Arc::new(metrics_on(&recorder));
    // The dashboard also has their metrics.
    metrics::with_local_recorder(&recorder, || {
        drop((KinesisMetrics::new("clicks"), ExporterMetrics::new("orders")));
        drop(SchedulerMetrics::new(["nightly"]));
    });
    let locker = Locker::new(store.clone()).with_options(options).with_metrics(metrics);
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/alerts.yml");
    let server = PrometheusServer::scraping_with_rules(address.into(), rules.as_ref()).await;
    let Some(server) = server else { return };
    let zero = |values: &[f64]| *values == [0.0];
    let one = |values: &[f64]| *values == [1.0];
    let some = |values: &[f64]| values.iter().any(|value| *value >= 1.0);
    server.wait_for(r#"lease_lost_total{group="leader",cause="revoked"}"#, zero).await;
    server.wait_for(r#"lease_obtain_total{group="jobs",result="granted"}"#, zero).await;

    let _kept = cause_events(&locker, &store).await;

    let granted = |values: &[f64]| *values == [2.0];
    server.wait_for(r#"lease_obtain_total{group="jobs",result="granted"}"#, granted).await;
    server.wait_for(r#"lease_obtain_total{group="leader",result="held"}"#, one).await;
    server.wait_for(r#"lease_obtain_total{group="jobs",result="error"}"#, one).await;
    server.wait_for(r#"lease_wait_seconds_count{group="leader"}"#, one).await;
    // The failed claim is repeated and released, too.
    let both = |values: &[f64]| *values == [2.0];
    server.wait_for(r#"lease_held_seconds_count{group="jobs",end="released"}"#, both).await;
    server.wait_for(r#"lease_held_seconds_count{group="jobs",end="lost"}"#, one).await;
    server.wait_for(r#"lease_held{group="leader"}"#, one).await;
    server.wait_for(r#"lease_held{group="jobs"}"#, zero).await;
    server.wait_for(r#"lease_waiters{group="leader"}"#, one).await;
    server.wait_for(r#"lease_lost_total{group="jobs",cause="revoked"}"#, one).await;
    server.wait_for("lease_heartbeat_seconds_count", some).await;
    server.wait_for(r#"lease_heartbeat_margin_ratio_count{group="leader"}"#, some).await;
    for operation in ["obtain", "heartbeat", "release", "holder"] {
        let count = format!(
            r#"lease_store_request_seconds_count{{store="memory",operation="{operation}",result="ok"}}"#
        );
        server.wait_for(&count, some).await;
    }
    let error = r#"lease_store_request_seconds_count{operation="obtain",result="error"}"#;
    server.wait_for(error, one).await;
    let alert = r#"ALERTS{alertname="LeaseLost",alertstate="firing",group="jobs",cause="revoked"}"#;
    server.wait_for(alert, one).await;

    for expression in expressions_of_the_dashboard() {
        server.wait_for(&expression, |values| !values.is_empty()).await;
    }

    store.every(Call::Heartbeat, Fault::Fail);
    server.wait_for(r#"lease_at_risk{group="leader"}"#, one).await;
    server.wait_for(r#"lease_heartbeat_failures_total{group="leader"}"#, some).await;
    store.heal();
    server.wait_for(r#"lease_at_risk{group="leader"}"#, zero).await;
}

fn expressions_of_the_dashboard() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/dashboard.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    // Grafana replaces the variable.
    let expression =
        |target: &Value| target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
    let expressions: Vec<_> = targets.map(expression).collect();
    assert!(expressions.len() >= 10, "{expressions:?}");
    expressions
}

#[tokio::test]
async fn number_of_series_does_not_depend_on_the_keys() {
    let recorder = builder().build_recorder();
    let locker = Locker::new(MemoryStore::new()).with_metrics(Arc::new(metrics_on(&recorder)));
    let handle = recorder.handle();
    let obtain_and_release = async |number: u32| {
        let lease = locker.obtain(&key(&format!("jobs/{number}"))).await.unwrap().into_lease();
        lease.unwrap().release().await.unwrap();
    };
    obtain_and_release(0).await;
    let before = series(&handle);

    for number in 0..100_000 {
        obtain_and_release(number).await;
    }

    assert!(before > 50, "{before} series");
    assert_eq!(series(&handle), before);
}
