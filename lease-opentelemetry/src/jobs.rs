//! The adapter between the runs of a scheduler and a meter of OpenTelemetry.

use std::time::Duration;

use lease_core::LeaseKey;
use lease_scheduler::{JobMetrics, Outcome, Run};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};

use crate::instruments::{counter, measured, seconds};

/// Reports the runs of a scheduler's jobs to a meter of OpenTelemetry. The attribute `job_name` is the name of the job.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lease_core::Locker;
/// use lease_memory::MemoryStore;
/// use lease_opentelemetry::SchedulerMeter;
/// use lease_scheduler::Scheduler;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let meter = opentelemetry::global::meter("leases");
/// let scheduler = Scheduler::builder(Locker::new(store.clone()), store)
///     .with_metrics(Arc::new(SchedulerMeter::new(["nightly", "cleaning"], &meter)))
///     .build()?;
/// # drop(scheduler);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SchedulerMeter {
    runs: Counter<u64>,
    missed_ticks: Counter<u64>,
    duration: Histogram<f64>,
    lateness: Histogram<f64>,
    clock_ahead: Gauge<f64>,
}

impl SchedulerMeter {
    /// Returns an adapter. Reports the counters of `jobs` as zero. Other jobs are reported from their first run.
    pub fn new(jobs: impl IntoIterator<Item = impl AsRef<str>>, meter: &Meter) -> Self {
        let metrics = Self {
            runs: counter(
                meter,
                "lease_job_runs_total",
                "Runs of a job, and ticks that did not run here",
            ),
            missed_ticks: counter(
                meter,
                "lease_job_missed_ticks_total",
                "Ticks that no machine started in time",
            ),
            duration: seconds(
                meter,
                "lease_job_duration_seconds",
                "How long the body of a job ran",
            ),
            lateness: seconds(meter, "lease_job_lateness_seconds", "Time from a tick to its start"),
            clock_ahead: measured(
                meter,
                "lease_job_clock_ahead_seconds",
                "How far a tick that is marked as run is ahead of this clock",
            ),
        };
        jobs.into_iter().for_each(|job| metrics.report_zeros(job.as_ref()));
        metrics
    }

    /// Without them, an alarm could not distinguish a counter at zero from a missing one.
    fn report_zeros(&self, job: &str) {
        let job = name(job);
        for outcome in Outcome::NAMES {
            self.runs.add(0, &[job.clone(), KeyValue::new("outcome", *outcome)]);
        }
        self.missed_ticks.add(0, std::slice::from_ref(&job));
        self.clock_ahead.record(0.0, std::slice::from_ref(&job));
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl JobMetrics for SchedulerMeter {
    fn ended(&self, run: &Run) {
        let job = name(run.job.as_str());
        self.runs.add(1, &[job.clone(), KeyValue::new("outcome", run.outcome.name())]);
        let job = std::slice::from_ref(&job);
        if let Outcome::Missed(missed) = &run.outcome {
            self.missed_ticks.add(missed.count as u64, job);
        }
        if let Some(body) = &run.body {
            self.duration.record(body.run_time.as_secs_f64(), job);
            self.lateness.record(body.latency.as_secs_f64(), job);
        }
    }

    fn clock_ahead(&self, job: &LeaseKey, ahead: Duration) {
        self.clock_ahead.record(ahead.as_secs_f64(), &[name(job.as_str())]);
    }
}

fn name(job: &str) -> KeyValue {
    KeyValue::new("job_name", job.to_owned())
}
