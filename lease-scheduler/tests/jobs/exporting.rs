//! Jobs that run an exporter.

use std::error::Error;
use std::sync::Arc;

use lease_core::Locker;
use lease_export::queue::MemoryQueue;
use lease_export::{Capacity, ExportError, Exporter, Limits, MemoryBuffer, MemorySink, Parts};
use lease_scheduler::{Job, Outcome, Schedule, TableSwitch};
use lease_test_servers::warnings::Warnings;
use tracing::Level;

use crate::harness::{SchedulerHarness, key, secs};

fn exporter(harness: &SchedulerHarness, name: &str) -> Exporter {
    let locker = Locker::new(harness.store.clone());
    let switch = TableSwitch::new(key("switch"), &locker, harness.store.clone()).on_at_first();
    Exporter::new(
        locker,
        key(name),
        Parts {
            switch: Arc::new(switch),
            queue: Arc::new(MemoryQueue::new(secs(60))),
            buffer: Arc::new(MemoryBuffer::new(Capacity::default())),
            sink: Arc::new(MemorySink::new(Limits::KINESIS)),
        },
    )
}

async fn outcome(harness: &SchedulerHarness, exporter: Exporter) -> Outcome {
    let job = Job::new(key("export"), move |_job| {
        let exporter = exporter.clone();
        async move {
            let flushed = exporter.flush(None).await;
            let scheduled = exporter.schedule_job().await;
            assert_eq!(flushed.is_ok(), scheduled.is_ok());
            drop(scheduled?);
            Ok(())
        }
    });
    harness.start("a", [job]).handle.run_now("export").await.unwrap().outcome
}

#[tokio::test(start_paused = true)]
async fn exporter_with_key_of_its_own_job_is_rejected() {
    let harness = SchedulerHarness::new();

    let outcome = outcome(&harness, exporter(&harness, "export")).await;

    let Outcome::Failed(error) = outcome else { panic!("{outcome:?}") };
    let error: &(dyn Error + 'static) = &*error;
    let refused = error.downcast_ref::<ExportError>().unwrap();
    assert!(matches!(refused, ExportError::KeyOfJob { .. }), "{refused:?}");
    assert!(!refused.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn exporter_with_own_key_runs_in_job() {
    let harness = SchedulerHarness::new();

    let outcome = outcome(&harness, exporter(&harness, "orders")).await;

    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn run_time_and_latency_of_job_are_logged() {
    let (log, _listening) = Warnings::listen_from(Level::INFO);
    let harness = SchedulerHarness::new();
    let hourly = Schedule::cron("0 * * * *", "UTC").unwrap();
    let job = Job::new(key("export"), harness.log.body("a", secs(7))).on(hourly);
    harness.until("2026-11-21T00:59:00Z").await;
    let lease =
        Locker::new(harness.store.clone()).obtain(&key("export")).await.unwrap().into_lease();
    let _machine = harness.start("a", [job]);
    harness.until("2026-11-21T01:00:05Z").await;
    lease.unwrap().release().await.unwrap();
    harness.until("2026-11-21T01:01:00Z").await;

    let lines = log.lines();
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("job finished")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for field in ["INFO", "job=export", "scheduled=2026-11-21T01:00:00Z", "outcome=\"finished\""] {
        assert!(lines[0].contains(field), "{field}: {lines:?}");
    }
    let seconds = |field: &str| -> f64 {
        let (_, value) = lines[0].split_once(field).unwrap();
        value.split_once('s').unwrap().0.parse().unwrap()
    };
    let (latency, run_time) = (seconds(" latency="), seconds(" run_time="));
    assert!((5.0..7.0).contains(&latency), "{latency}: {lines:?}");
    assert!((7.0..7.1).contains(&run_time), "{run_time}: {lines:?}");
}
