//! The metrics of a scheduler's jobs.

use std::sync::Arc;
use std::time::Duration;

use lease_core::Locker;
use lease_memory::MemoryStore;
use lease_opentelemetry::SchedulerMeter;
use lease_scheduler::jiff::{SignedDuration, Timestamp};
use lease_scheduler::{Job, Schedule, Scheduler, SchedulerBuilder, SkewedWallClock};
use opentelemetry::metrics::MeterProvider;
use tokio::time::sleep;

use crate::Exported;

/// A scheduler of the job `hourly`, whose clock shows `time` now.
fn scheduler_at(store: &MemoryStore, time: &str) -> (SchedulerBuilder, Arc<SkewedWallClock>) {
    let start: Timestamp = time.parse().unwrap();
    let wall = Arc::new(SkewedWallClock::new(start, 1.0));
    let hourly = Job::new("hourly".parse().unwrap(), |_job| async { Ok(()) });
    let builder = Scheduler::builder(Locker::new(store.clone()), store.clone())
        .with_wall_clock(Arc::clone(&wall) as _)
        .with_job(hourly.on(Schedule::cron("0 * * * *", "UTC").unwrap()));
    (builder, wall)
}

#[tokio::test(start_paused = true)]
async fn each_metric_of_jobs_is_exported() {
    let exported = Exported::new();
    let meter = exported.provider.meter("leases");
    let metrics = SchedulerMeter::new(["works", "fails", "hourly"], &meter);
    let store = MemoryStore::new();
    let (ahead, _wall) = scheduler_at(&store, "2026-11-21T05:59:00Z");
    let scheduler = ahead.build().unwrap();
    let (handle, running) = (scheduler.handle(), tokio::spawn(scheduler.run()));
    sleep(Duration::from_secs(90)).await;
    handle.stop();
    running.await.unwrap();
    let missed = "lease_job_missed_ticks_total job_name=hourly";
    assert_eq!(exported.values()[missed], 0);

    let (right, wall) = scheduler_at(&store, "2026-11-21T05:00:00Z");
    let scheduler = right
        .with_job(Job::new("works".parse().unwrap(), |_job| async { Ok(()) }))
        .with_job(Job::new("fails".parse().unwrap(), |_job| async { Err("no".into()) }))
        .with_metrics(Arc::new(metrics))
        .build()
        .unwrap();
    let (handle, _running) = (scheduler.handle(), tokio::spawn(scheduler.run()));
    for job in ["works", "works", "fails"] {
        let _run = handle.run_now(job).await.unwrap();
    }
    sleep(Duration::from_secs(60)).await;

    let values = exported.values();
    for (name, value) in [
        ("lease_job_runs_total job_name=works outcome=finished", 2),
        ("lease_job_runs_total job_name=fails outcome=failed", 1),
        ("lease_job_runs_total job_name=hourly outcome=missed", 0),
        ("lease_job_duration_seconds job_name=works", 2),
        ("lease_job_lateness_seconds job_name=fails", 1),
    ] {
        assert_eq!(values.get(name), Some(&value), "{name}: {values:#?}");
    }
    let ahead = "lease_job_clock_ahead_seconds job_name=hourly";
    assert!(values[ahead] > 3_000, "{values:#?}");
    let _reset = handle.reset_mark("hourly").await.unwrap();
    wall.step(SignedDuration::from_mins(185));
    sleep(Duration::from_secs(300)).await;
    let values = exported.values();
    assert_eq!((values[ahead], values[missed]), (0, 3), "{values:#?}");
}
