//! The adapter between the runs of a scheduler and the `metrics` facade.

use std::collections::HashMap;
use std::sync::Arc;

use lease_scheduler::{JobMetrics, Outcome, Run};
use metrics::{Counter, Histogram, counter, histogram};
use parking_lot::RwLock;

use crate::names;

/// Reports the runs of a scheduler's jobs to the recorder of the `metrics` facade. The label `job` is the name of the
/// job.
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
        let runs = |outcome| counter!(names::JOB_RUNS, "job" => job.clone(), "outcome" => outcome);
        Self {
            runs: OUTCOMES.map(|outcome| (outcome, runs(outcome))).into(),
            missed_ticks: counter!(names::JOB_MISSED_TICKS, "job" => job.clone()),
            duration: histogram!(names::JOB_DURATION_SECONDS, "job" => job.clone()),
            lateness: histogram!(names::JOB_LATENESS_SECONDS, "job" => job.clone()),
        }
    }
}

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
}

/// The names of [`Outcome`].
const OUTCOMES: [&str; 8] =
    ["finished", "failed", "timed out", "lost", "missed", "died", "skipped", "disabled"];
