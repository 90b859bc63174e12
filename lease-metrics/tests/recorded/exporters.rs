//! An exporter whose sink is down, or rejects events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{FencingToken, Locker};
use lease_export::queue::MemoryQueue;
use lease_export::{
    Capacity, Event, EventBuffer, Exporter, Limits, MemoryBuffer, MemorySink, Parts, Put, Record,
    ServiceError, ServiceErrorKind, Sink, TableSwitch,
};
use lease_memory::MemoryStore;
use lease_metrics::{ExporterMetrics, LeaseMetrics};
use serde_json::json;
use tokio::time::sleep;

use crate::recording::{Recording, mins};

pub(crate) const ALERTS: &[&[&str]] = &[OLD, REJECTED];
const OLD: &[&str] = &["ExportOld"];
const REJECTED: &[&str] = &["ExportRejected"];

#[derive(Debug, Clone)]
struct FaultySink {
    sink: MemorySink,
    is_down: Arc<AtomicBool>,
}

#[async_trait]
impl Sink for FaultySink {
    fn limits(&self) -> Limits {
        self.sink.limits()
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        if self.is_down.load(Ordering::SeqCst) {
            let cause = "injected by the test";
            return Err(ServiceError::new("sink", ServiceErrorKind::Unavailable, cause));
        }
        self.sink.put(token, records).await
    }
}

/// Starts a process that exports an event each minute.
async fn export_on(recording: &mut Recording) -> FaultySink {
    let process = recording.process("a");
    let metrics = process.with_metrics(|| ExporterMetrics::new("orders"));
    let leases = process.with_metrics(|| LeaseMetrics::new("memory"));
    let store = MemoryStore::new();
    let locker = Locker::new(store.clone()).with_metrics(Arc::new(leases));
    let switch = TableSwitch::new("export/enabled".parse().unwrap(), &locker, store);
    let buffer = MemoryBuffer::new(Capacity::default());
    let limits = Limits::FIREHOSE.with_events_per_record(1).unwrap();
    let sink = FaultySink { sink: MemorySink::new(limits), is_down: Arc::default() };
    let parts = Parts {
        switch: Arc::new(switch),
        queue: Arc::new(MemoryQueue::new(Duration::from_secs(60))),
        buffer: Arc::new(buffer.clone()),
        sink: Arc::new(sink.clone()),
    };
    let exporter = Exporter::new(locker, "export".parse().unwrap(), parts);
    let exporter = exporter.with_metrics(Arc::new(metrics));
    exporter.enable().await.unwrap();
    tokio::spawn(async move {
        for number in 1_u32.. {
            let event = Event::new(id(number).parse().unwrap(), &json!({ "number": number }));
            let _kept = buffer.append(&[event.unwrap()]).await.unwrap();
            let _scheduled = exporter.schedule_job().await.unwrap();
            // A job that failed stays in the queue.
            let _worked = exporter.run_next_job(Duration::ZERO).await;
            sleep(mins(1)).await;
        }
    });
    sink
}

fn id(number: u32) -> String {
    format!("order-{number}")
}

#[tokio::test(start_paused = true)]
async fn healthy_exporter_fires_no_alert() {
    let mut recording = Recording::start();
    let sink = export_on(&mut recording).await;

    recording.run_for(mins(40)).await;

    assert!(sink.sink.ids().len() >= 39);
    recording.expect_none_so_far();
    recording.check(&[]);
}

#[tokio::test(start_paused = true)]
async fn long_outage_of_sink_makes_events_old() {
    let mut recording = Recording::start();
    let sink = export_on(&mut recording).await;
    recording.run_for(mins(12)).await;
    recording.expect_none_so_far();

    sink.is_down.store(true, Ordering::SeqCst);
    recording.run_for(mins(24)).await;
    recording.expect(&[("ExportOld", r#"exporter="orders""#)]);
    sink.is_down.store(false, Ordering::SeqCst);
    recording.run_for(mins(10)).await;

    recording.expect(&[]);
    recording.check(OLD);
}

#[tokio::test(start_paused = true)]
async fn rejected_event_is_reported() {
    let mut recording = Recording::start();
    let sink = export_on(&mut recording).await;
    recording.run_for(mins(12)).await;
    recording.expect_none_so_far();

    sink.sink.refuse([id(15).parse().unwrap()]);
    recording.run_for(mins(5)).await;
    recording.expect(&[("ExportRejected", r#"exporter="orders",reason="refused""#)]);
    recording.run_for(mins(20)).await;

    recording.expect(&[]);
    recording.check(REJECTED);
}
