//! The job that the crate provides for an exporter.

use std::sync::Arc;
use std::time::Duration;

use lease_core::Locker;
use lease_export::queue::MemoryQueue;
use lease_export::{
    Capacity, Event, EventBuffer, Exporter, Limits, MemoryBuffer, MemorySink, Parts, Response,
    Retries,
};
use lease_scheduler::{Ending, Outcome, TableSwitch, export_job};
use serde_json::json;

use crate::harness::{SchedulerHarness, key, secs};

/// The exporters of a fleet. They share a buffer and a sink.
struct Fleet {
    harness: SchedulerHarness,
    buffer: MemoryBuffer,
    sink: MemorySink,
}

impl Fleet {
    fn new() -> Self {
        let buffer = MemoryBuffer::new(Capacity::default());
        let sink = MemorySink::new(Limits::KINESIS);
        Self { harness: SchedulerHarness::new(), buffer, sink }
    }

    fn exporter(&self) -> Exporter {
        let locker = Locker::new(self.harness.store.clone());
        let switch = TableSwitch::new(key("switch"), &locker, self.harness.store.clone());
        let parts = Parts {
            switch: Arc::new(switch.on_at_first()),
            queue: Arc::new(MemoryQueue::new(secs(60))),
            buffer: Arc::new(self.buffer.clone()),
            sink: Arc::new(self.sink.clone()),
        };
        let none = Retries::new(0, Duration::ZERO, Duration::ZERO).unwrap();
        Exporter::new(locker, key("orders"), parts).with_retries(none)
    }

    async fn append(&self, ids: &[&str]) {
        let event = |id: &&str| Event::new(id.parse().unwrap(), &json!({ "id": id })).unwrap();
        let events: Vec<_> = ids.iter().map(event).collect();
        let _kept = self.buffer.append(&events).await.unwrap();
    }

    fn arrived(&self) -> Vec<String> {
        self.sink.ids().iter().map(ToString::to_string).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn fleet_exports_each_event_once_at_full_minute() {
    let fleet = Fleet::new();
    let job = || export_job(key("export"), fleet.exporter()).unwrap();
    let (a, b) = (fleet.harness.start("a", [job()]), fleet.harness.start("b", [job()]));
    fleet.harness.until("2026-11-21T00:00:30Z").await;
    fleet.append(&["1", "2"]).await;

    fleet.harness.until("2026-11-21T00:00:59Z").await;
    assert_eq!(fleet.arrived(), [""; 0]);
    fleet.harness.until("2026-11-21T00:01:30Z").await;
    assert_eq!(fleet.arrived(), ["1", "2"]);
    fleet.append(&["3"]).await;
    fleet.harness.until("2026-11-21T00:02:30Z").await;

    assert_eq!(fleet.arrived(), ["1", "2", "3"]);
    let runs = a.handle.history("export").await.unwrap();
    let mut runs: Vec<_> = runs.iter().map(|run| (run.scheduled, run.note.as_str())).collect();
    runs.sort_unstable();
    let notes: Vec<_> = runs.iter().map(|(_, note)| *note).collect();
    assert_eq!(notes, ["2 events sent", "1 events sent"]);
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn small_batch_is_exported_at_first_tick_after_longest_wait() {
    let fleet = Fleet::new();
    let exporter = fleet.exporter().with_min_per_job(10).with_max_wait(secs(150)).unwrap();
    let _a = fleet.harness.start("a", [export_job(key("export"), exporter).unwrap()]);
    fleet.harness.until("2026-11-21T00:00:10Z").await;
    fleet.append(&["1"]).await;

    fleet.harness.until("2026-11-21T00:02:59Z").await;
    assert_eq!(fleet.arrived(), [""; 0]);

    fleet.harness.until("2026-11-21T00:03:01Z").await;
    assert_eq!(fleet.arrived(), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn run_fails_while_sink_takes_no_event() {
    let fleet = Fleet::new();
    let job = export_job(key("export"), fleet.exporter()).unwrap();
    let a = fleet.harness.start("a", [job]);
    fleet.append(&["1", "2"]).await;

    for response in [Response::Unavailable, Response::FailAll, Response::Refuse] {
        fleet.sink.respond([response.clone()]);
        let run = a.handle.run_now("export").await.unwrap();
        assert!(matches!(run.outcome, Outcome::Failed(_)), "{response:?}: {run:?}");
        let past = a.handle.last_run("export").await.unwrap().unwrap();
        assert_eq!(past.ending, Ending::Failed);
        let note = "0 events sent, 2 stay pending: ";
        assert!(past.note.starts_with(note), "{response:?}: {}", past.note);
    }

    let run = a.handle.run_now("export").await.unwrap();
    assert!(matches!(run.outcome, Outcome::Finished), "{run:?}");
    assert_eq!(fleet.arrived(), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn run_without_export_finishes_with_its_reason() {
    let fleet = Fleet::new();
    let exporter = fleet.exporter();
    let a = fleet.harness.start("a", [export_job(key("export"), exporter.clone()).unwrap()]);
    fleet.append(&["1"]).await;
    let note = async || {
        let run = a.handle.run_now("export").await.unwrap();
        assert!(matches!(run.outcome, Outcome::Finished), "{run:?}");
        a.handle.last_run("export").await.unwrap().unwrap().note
    };

    let operator =
        Locker::new(fleet.harness.store.clone()).with_lessee("operator".parse().unwrap());
    let lease = operator.obtain(&key("orders")).await.unwrap().into_lease().unwrap();
    assert_eq!(note().await, "operator exports");
    lease.release().await.unwrap();

    exporter.disable().await.unwrap();
    assert_eq!(note().await, "export is disabled");
    assert_eq!(fleet.arrived(), [""; 0]);
    assert!(fleet.harness.is_free("orders").await);
}

#[tokio::test(start_paused = true)]
async fn dropped_run_releases_lease_and_loses_no_event() {
    let fleet = Fleet::new();
    let job = || export_job(key("export"), fleet.exporter()).unwrap();
    fleet.append(&["1"]).await;
    fleet.sink.respond([Response::Hang]);
    let a = fleet.harness.start("a", [job().timeout(secs(10)).unwrap()]);

    let run = a.handle.run_now("export").await.unwrap();
    assert!(matches!(run.outcome, Outcome::TimedOut(_)), "{run:?}");

    // The release of a dropped run may still be on its way.
    let waiting = Locker::new(fleet.harness.store.clone());
    waiting.wait_until_obtained(&key("orders")).await.unwrap().release().await.unwrap();
    let run = a.handle.run_now("export").await.unwrap();
    assert!(matches!(run.outcome, Outcome::Finished), "{run:?}");
    assert_eq!(fleet.arrived(), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn job_with_key_of_its_exporter_is_refused() {
    let fleet = Fleet::new();

    let refused = export_job(key("orders"), fleet.exporter()).err().unwrap();

    let expected =
        "job orders has the key of its exporter: the job would hold the exporter's lease";
    assert_eq!(refused.to_string(), expected);
}
