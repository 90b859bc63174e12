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
use lease_opentelemetry::ExporterMeter;
use opentelemetry::metrics::MeterProvider;

use crate::Exported;

#[tokio::test(start_paused = true)]
async fn each_metric_of_exporter_is_exported() {
    let exported = Exported::new();
    let metrics = ExporterMeter::new("orders", &exported.provider.meter("leases"));
    let (store, buffer) = (MemoryStore::new(), MemoryBuffer::new(Capacity::default()));
    let sink = MemorySink::new(Limits::FIREHOSE.with_events_per_record(1).unwrap());
    let locker = Locker::new(store.clone());
    let parts = Parts {
        switch: Arc::new(TableSwitch::new("enabled".parse().unwrap(), &locker, store)),
        queue: Arc::new(MemoryQueue::new(Duration::from_secs(60))),
        buffer: Arc::new(buffer.clone()),
        sink: Arc::new(sink.clone()),
    };
    let exporter = Exporter::new(locker, "export".parse().unwrap(), parts)
        .with_retries(Retries::new(0, Duration::ZERO, Duration::ZERO).unwrap())
        .with_metrics(Arc::new(metrics));
    exporter.enable().await.unwrap();
    let event = |name: &str| Event::new(name.parse().unwrap(), &serde_json::json!(name)).unwrap();
    let _kept = buffer.append(&[event("a"), event("b"), event("c")]).await.unwrap();

    sink.respond([Response::Unavailable]);
    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);
    tokio::time::advance(Duration::from_secs(7)).await;
    exporter.measure_backlog().await.unwrap();
    let values = exported.values();
    for (name, value) in [
        ("lease_export_pending exporter=orders", 3),
        ("lease_export_oldest_seconds exporter=orders", 7),
        ("lease_export_failed_total exporter=orders", 3),
        ("lease_export_batch_seconds exporter=orders result=error", 1),
        ("lease_export_rejected_total exporter=orders reason=too_large to=dead_letters", 0),
    ] {
        assert_eq!(values.get(name), Some(&value), "{name}: {values:#?}");
    }
    sink.refuse(["b".parse().unwrap()]);
    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 2);

    let values = exported.values();
    for (name, value) in [
        ("lease_export_pending exporter=orders", 0),
        ("lease_export_sent_total exporter=orders", 2),
        ("lease_export_rejected_total exporter=orders reason=refused to=aside", 1),
        ("lease_export_seconds end=done exporter=orders", 2),
        ("lease_export_running exporter=orders", 0),
        ("lease_export_collected_total exporter=orders", 0),
        ("lease_export_bad_total exporter=orders", 0),
    ] {
        assert_eq!(values.get(name), Some(&value), "{name}: {values:#?}");
    }
    assert!(values["lease_export_records_total exporter=orders"] >= 3);
}
