//! The metrics of a scheduler's jobs.

use std::sync::Arc;
use std::time::Duration;

use lease_core::Locker;
use lease_memory::MemoryStore;
use lease_metrics::SchedulerMetrics;
use lease_scheduler::jiff::{SignedDuration, Timestamp};
use lease_scheduler::{
    Job, JobMetrics, MarkReset, Misfire, Schedule, Scheduler, SchedulerBuilder, SkewedWallClock,
};
use lease_test_servers::port::free_port;
use lease_test_servers::prometheus::PrometheusServer;
use tokio::time::{sleep, timeout};

use crate::builder;

/// A scheduler of the job `hourly`, whose clock shows `time` now.
fn scheduler_at(store: &MemoryStore, time: &str) -> (SchedulerBuilder, Arc<SkewedWallClock>) {
    let start: Timestamp = time.parse().unwrap();
    let wall = Arc::new(SkewedWallClock::new(start, 1.0));
    let hourly = Job::new("hourly".parse().unwrap(), |_job| async { Ok(()) })
        .on(Schedule::cron("0 * * * *", "UTC").unwrap())
        .misfire(Misfire::StartWithin(Duration::from_secs(1)))
        .unwrap();
    let builder = Scheduler::builder(Locker::new(store.clone()), store.clone())
        .with_wall_clock(Arc::clone(&wall) as _)
        .with_job(hourly);
    (builder, wall)
}

/// Runs the tick of six o'clock on a machine whose clock is an hour ahead.
async fn run_tick_ahead(store: &MemoryStore) {
    let (builder, _wall) = scheduler_at(store, "2026-11-21T05:59:59.5Z");
    let scheduler = builder.build().unwrap();
    let (handle, running) = (scheduler.handle(), tokio::spawn(scheduler.run()));
    let has_run = async {
        while handle.history("hourly").await.unwrap().is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), has_run).await.unwrap();
    handle.stop();
    running.await.unwrap();
}

#[tokio::test]
async fn each_metric_of_jobs_is_scraped() {
    let address = ([127, 0, 0, 1], free_port());
    let (recorder, exporter) = builder().with_http_listener(address).build().unwrap();
    let _exporting = tokio::spawn(exporter);
    let metrics: Arc<dyn JobMetrics> = metrics::with_local_recorder(&recorder, || {
        Arc::new(SchedulerMetrics::new(["works", "fails", "hourly"]))
    });
    let Some(server) = PrometheusServer::scraping(address.into()).await else { return };
    let is = |expected: f64| move |values: &[f64]| *values == [expected];
    let missed = r#"lease_job_runs_total{job_name="hourly",outcome="missed"}"#;
    server.wait_for(missed, is(0.0)).await;
    let store = MemoryStore::new();
    run_tick_ahead(&store).await;

    let (builder, wall) = scheduler_at(&store, "2026-11-21T05:00:00Z");
    let scheduler = builder
        .with_job(Job::new("works".parse().unwrap(), |_job| async { Ok(()) }))
        .with_job(Job::new("fails".parse().unwrap(), |_job| async { Err("no".into()) }))
        .with_metrics(metrics)
        .build()
        .unwrap();
    let (handle, running) = (scheduler.handle(), tokio::spawn(scheduler.run()));
    for job in ["works", "works", "fails"] {
        let _run = handle.run_now(job).await.unwrap();
    }

    server.wait_for(r#"lease_job_runs_total{job_name="works",outcome="finished"}"#, is(2.0)).await;
    server.wait_for(r#"lease_job_runs_total{job_name="fails",outcome="failed"}"#, is(1.0)).await;
    server.wait_for(r#"lease_job_duration_seconds_count{job_name="works"}"#, is(2.0)).await;
    server.wait_for(r#"lease_job_lateness_seconds_count{job_name="fails"}"#, is(1.0)).await;
    let ahead = r#"lease_job_clock_ahead_seconds{job_name="hourly"}"#;
    server.wait_for(ahead, |values| values.iter().any(|ahead| *ahead > 3_000.0)).await;
    let reset = handle.reset_mark("hourly").await.unwrap();
    assert!(matches!(reset, MarkReset::Reset(_)), "{reset:?}");
    server.wait_for(ahead, is(0.0)).await;
    wall.step(SignedDuration::from_mins(185));
    server.wait_for(missed, is(1.0)).await;
    server.wait_for(r#"lease_job_missed_ticks_total{job_name="hourly"}"#, is(3.0)).await;
    handle.stop();
    running.await.unwrap();
}
