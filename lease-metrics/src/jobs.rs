//! The adapter between the runs of a scheduler and the `metrics` facade.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lease_core::LeaseKey;
use lease_scheduler::{JobMetrics, Outcome, Run};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use parking_lot::RwLock;

use crate::names;

/// Reports the runs of a scheduler's jobs to the recorder of the `metrics` facade. The label `job_name` is the name of
/// the job. A label `job` would be renamed by Prometheus, which uses it for the scraped program.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lease_core::Locker;
/// use lease_memory::MemoryStore;
/// use lease_metrics::SchedulerMetrics;
/// use lease_scheduler::Scheduler;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let metrics = SchedulerMetrics::new(["nightly", "cleaning"]);
/// let scheduler = Scheduler::builder(Locker::new(store.clone()), store)
///     .with_metrics(Arc::new(metrics))
///     .build()?;
/// # drop(scheduler);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SchedulerMetrics {
    jobs: RwLock<HashMap<String, Arc<JobInstruments>>>,
}

#[derive(Debug)]
struct JobInstruments {
    runs: Vec<(&'static str, Counter)>,
    missed_ticks: Counter,
    duration: Histogram,
    lateness: Histogram,
    clock_ahead: Gauge,
}

impl SchedulerMetrics {
    /// Registers the metrics of `jobs`, so that each is reported as zero before its first run. The metrics of other
    /// jobs are registered at their first run.
    ///
    /// Install the recorder before.
    pub fn new(jobs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        names::describe_jobs();
        let register = |job: &str| (job.to_owned(), Arc::new(JobInstruments::register(job)));
        let jobs = jobs.into_iter().map(|job| register(job.as_ref()));
        Self { jobs: RwLock::new(jobs.collect()) }
    }

    fn of(&self, job: &str) -> Arc<JobInstruments> {
        let known = self.jobs.read().get(job).cloned();
        known.unwrap_or_else(|| {
            let register = || Arc::new(JobInstruments::register(job));
            Arc::clone(self.jobs.write().entry(job.to_owned()).or_insert_with(register))
        })
    }
}

impl JobInstruments {
    fn register(job: &str) -> Self {
        let job = job.to_owned();
        let runs = |outcome: &'static str| counter!(names::JOB_RUNS, "job_name" => job.clone(), "outcome" => outcome);
        Self {
            runs: Outcome::NAMES.iter().map(|outcome| (*outcome, runs(outcome))).collect(),
            missed_ticks: counter!(names::JOB_MISSED_TICKS, "job_name" => job.clone()),
            duration: histogram!(names::JOB_DURATION_SECONDS, "job_name" => job.clone()),
            lateness: histogram!(names::JOB_LATENESS_SECONDS, "job_name" => job.clone()),
            clock_ahead: gauge!(names::JOB_CLOCK_AHEAD_SECONDS, "job_name" => job),
        }
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl JobMetrics for SchedulerMetrics {
    fn ended(&self, run: &Run) {
        let job = self.of(run.job.as_str());
        if let Some((_, runs)) = job.runs.iter().find(|(name, _)| *name == run.outcome.name()) {
            runs.increment(1);
        }
        if let Outcome::Missed(missed) = &run.outcome {
            job.missed_ticks.increment(missed.count as u64);
        }
        if let Some(body) = &run.body {
            job.duration.record(body.run_time.as_secs_f64());
            job.lateness.record(body.latency.as_secs_f64());
        }
    }

    fn clock_ahead(&self, job: &LeaseKey, ahead: Duration) {
        self.of(job.as_str()).clock_ahead.set(ahead.as_secs_f64());
    }
}
