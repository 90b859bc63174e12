//! The metrics of an exporter.

use std::sync::Arc;
use std::time::Duration;

use lease_core::Locker;
use lease_export::queue::MemoryQueue;
use lease_export::{
    Capacity, Event, EventBuffer, Exporter, Limits, MemoryBuffer, MemorySink, Parts, Response,
    Retries, TableSwitch,
};
use lease_memory::MemoryStore;
use lease_metrics::ExporterMetrics;
use lease_test_servers::port::free_port;
use lease_test_servers::prometheus::PrometheusServer;
use metrics_exporter_prometheus::PrometheusRecorder;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{builder, series};

struct Exporting {
    exporter: Exporter,
    buffer: MemoryBuffer,
    sink: MemorySink,
}

impl Exporting {
    async fn with_metrics_on(recorder: &PrometheusRecorder) -> Self {
        let store = MemoryStore::new();
        let locker = Locker::new(store.clone());
        let buffer = MemoryBuffer::new(Capacity::default());
        let sink = MemorySink::new(Limits::FIREHOSE.with_events_per_record(1).unwrap());
        let switch = TableSwitch::new("export/enabled".parse().unwrap(), &locker, store);
        let parts = Parts {
            switch: Arc::new(switch),
            queue: Arc::new(MemoryQueue::new(Duration::from_secs(60))),
            buffer: Arc::new(buffer.clone()),
            sink: Arc::new(sink.clone()),
        };
        let metrics = metrics::with_local_recorder(recorder, || ExporterMetrics::new("orders"));
        let exporter = Exporter::new(locker, "export".parse().unwrap(), parts)
            .with_retries(Retries::new(0, Duration::ZERO, Duration::ZERO).unwrap())
            .with_metrics(Arc::new(metrics));
        exporter.enable().await.unwrap();
        Self { exporter, buffer, sink }
    }

    async fn append(&self, name: &str) {
        let event = Event::new(name.parse().unwrap(), &json!({ "name": name })).unwrap();
        let _kept = self.buffer.append(&[event]).await.unwrap();
    }
}

#[tokio::test]
async fn each_metric_of_exporter_is_scraped() {
    let address = ([127, 0, 0, 1], free_port());
    let (recorder, exporter) = builder().with_http_listener(address).build().unwrap();
    let _serving = tokio::spawn(exporter);
    let exporting = Exporting::with_metrics_on(&recorder).await;
    let Some(server) = PrometheusServer::scraping(address.into()).await else { return };
    let is = |expected: f64| move |values: &[f64]| *values == [expected];
    let rejected = r#"lease_export_rejected_total{exporter="orders",reason="refused",to="aside"}"#;
    server.wait_for(rejected, is(0.0)).await;

    exporting.append("a").await;
    exporting.append("b").await;
    exporting.append("c").await;
    exporting.sink.respond([Response::Unavailable]);
    assert_eq!(exporting.exporter.flush_pending_events(None).await.unwrap(), 0);

    server.wait_for(r#"lease_export_pending{exporter="orders"}"#, is(3.0)).await;
    server.wait_for("lease_export_failed_total", is(3.0)).await;
    server.wait_for(r#"lease_export_batch_seconds_count{result="error"}"#, is(1.0)).await;
    let oldest = async || {
        exporting.exporter.measure_backlog().await.unwrap();
        server.query("lease_export_oldest_seconds").await
    };
    let is_old = async {
        while oldest().await.iter().all(|age| *age <= 0.0) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(60), is_old).await.unwrap();
    exporting.sink.refuse(["b".parse().unwrap()]);
    assert_eq!(exporting.exporter.flush_pending_events(None).await.unwrap(), 2);

    server.wait_for(rejected, is(1.0)).await;
    server.wait_for("lease_export_sent_total", is(2.0)).await;
    server.wait_for("lease_export_pending", is(0.0)).await;
    server.wait_for("lease_export_oldest_seconds", is(0.0)).await;
    server.wait_for(r#"lease_export_seconds_count{end="done"}"#, is(2.0)).await;
    server.wait_for("lease_export_running", is(0.0)).await;
    for counter in ["records", "collected", "bad"] {
        let counter = format!("lease_export_{counter}_total");
        server.wait_for(&counter, |values| values.len() == 1).await;
    }
}

#[tokio::test]
async fn number_of_series_does_not_depend_on_events() {
    let recorder = builder().build_recorder();
    let exporting = Exporting::with_metrics_on(&recorder).await;
    let send = async |number: u32| {
        exporting.append(&number.to_string()).await;
        assert_eq!(exporting.exporter.flush_pending_events(None).await.unwrap(), 1);
    };
    send(0).await;
    let before = series(&recorder.handle());

    for number in 1..1_000 {
        send(number).await;
    }

    assert!(before > 15, "{before} series");
    assert_eq!(series(&recorder.handle()), before);
}
