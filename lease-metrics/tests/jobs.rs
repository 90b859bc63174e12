//! The metrics of a scheduler's jobs.

use std::sync::Arc;

use lease_core::Locker;
use lease_memory::MemoryStore;
use lease_metrics::SchedulerMetrics;
use lease_scheduler::{Job, Scheduler};
use metrics_exporter_prometheus::PrometheusBuilder;

#[tokio::test]
async fn runs_are_counted_by_job_and_outcome() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = metrics::with_local_recorder(&recorder, || {
        SchedulerMetrics::new(["works", "fails", "never"])
    });
    let store = MemoryStore::new();
    let scheduler = Scheduler::builder(Locker::new(store.clone()), store)
        .with_job(Job::new("works".parse().unwrap(), |_job| async { Ok(()) }))
        .with_job(Job::new("fails".parse().unwrap(), |_job| async { Err("no".into()) }))
        .with_metrics(Arc::new(metrics))
        .build()
        .unwrap();
    let handle = scheduler.handle();

    for job in ["works", "works", "fails"] {
        let _run = handle.run_now(job).await.unwrap();
    }

    let text = recorder.handle().render();
    for line in [
        r#"lease_job_runs_total{job="works",outcome="finished"} 2"#,
        r#"lease_job_runs_total{job="fails",outcome="failed"} 1"#,
        r#"lease_job_runs_total{job="never",outcome="missed"} 0"#,
        r#"lease_job_missed_ticks_total{job="works"} 0"#,
        r#"lease_job_duration_seconds_count{job="works"} 2"#,
        r#"lease_job_lateness_seconds_count{job="fails"} 1"#,
    ] {
        assert!(text.lines().any(|written| written == line), "{line} is missing:\n{text}");
    }
}
