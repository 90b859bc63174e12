//! The handle of a scheduler: changes, lists and runs its jobs, and stops it.

use std::sync::Arc;

use jiff::Timestamp;
use lease_core::{InvalidInput, LeaseKey, StoreError, StoreErrorKind};

use crate::control::mark_reset::MarkReset;
use crate::control::{JobControl, JobStatus};
use crate::history::PastRun;
use crate::job::Job;
use crate::job_set::JobSet;
use crate::outcome::Run;

/// Adds, lists, runs and removes the jobs of a [`Scheduler`](crate::Scheduler), reads histories, and stops the scheduler. Clones
/// control the same scheduler. For jobs of other processes, use [`control`](Self::control).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::Locker;
/// use lease_memory::MemoryStore;
/// use lease_scheduler::{Job, Outcome, Schedule, Scheduler};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let scheduler = Scheduler::builder(Locker::new(store.clone()), store).build()?;
/// let handle = scheduler.handle();
/// let running = tokio::spawn(scheduler.run());
///
/// let cleaning = Job::new("cleaning".parse()?, |_job| async { Ok(()) })
///     .on(Schedule::every(Duration::from_secs(600))?);
/// handle.add_job(cleaning)?;
/// assert_eq!(handle.job_names().len(), 1);
/// assert!(matches!(handle.run_now("cleaning").await?.outcome, Outcome::Finished));
/// assert!(handle.remove_job("cleaning").await);
///
/// handle.stop();
/// running.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SchedulerHandle {
    pub(crate) jobs: Arc<JobSet>,
}

impl SchedulerHandle {
    /// Stops the scheduler. [`run`](crate::Scheduler::run) returns when all bodies have ended.
    pub fn stop(&self) {
        self.jobs.stopping.cancel();
    }

    /// Adds a job while the scheduler runs. All processes should add the same jobs. If the table has no record of the
    /// job, its ticks count from now on. Otherwise they count from the mark in the record, so the ticks between count
    /// as missed or are caught up.
    ///
    /// # Errors
    ///
    /// As for [`build`](crate::SchedulerBuilder::build).
    pub fn add_job(&self, job: Job) -> Result<(), InvalidInput> {
        self.jobs.add_job(job)
    }

    /// Removes the job `name` from this scheduler, and waits until its run on this machine has ended. A body
    /// has the [grace](crate::SchedulerBuilder::with_grace) of a stop. Returns false if no job has the name.
    ///
    /// Other processes keep the job, and the table keeps its record. If the job is added again, it continues with
    /// its marks, and the ticks between count as missed or are caught up.
    ///
    /// # Cancel safety
    ///
    /// Safe: the job is removed, and its body may still run.
    pub async fn remove_job(&self, name: &str) -> bool {
        let removed = self.jobs.runners.write().remove(name);
        let Some(runner) = removed else { return false };
        runner.stopping.cancel();
        runner.tasks.close();
        runner.tasks.wait().await;
        true
    }

    /// Returns the names of this scheduler's jobs, in order.
    pub fn job_names(&self) -> Vec<LeaseKey> {
        self.jobs.runners.read().keys().cloned().collect()
    }

    /// Returns the status of each job of this scheduler: next ticks, pause, runs. A job without a record, since
    /// it was just added, is missing.
    ///
    /// # Errors
    ///
    /// If the table does not answer, or a record cannot be read.
    pub async fn jobs(&self) -> Result<Vec<JobStatus>, StoreError> {
        let mut jobs = Vec::new();
        for name in self.job_names() {
            jobs.extend(self.jobs.control.job(name.as_str()).await?);
        }
        Ok(jobs)
    }

    /// Returns a control of all jobs in the table, also those of other processes: pause, resume, trigger, and
    /// queries of the history.
    pub fn control(&self) -> JobControl {
        self.jobs.control.clone()
    }

    /// Runs the job `name` now, on this machine, unless its key is held or the job is disabled. Returns the
    /// outcome. Such a run marks no tick, and does not depend on the job's schedule.
    ///
    /// # Errors
    ///
    /// If no job has the name `name`.
    ///
    /// # Cancel safety
    ///
    /// Safe. If this future is dropped, the body is dropped at its current await, and its lease is
    /// released.
    pub async fn run_now(&self, name: &str) -> Result<Run, InvalidInput> {
        let runner = self.jobs.runner(name)?;
        let call = runner.tasks.track_future(runner.run_now());
        let run = self.jobs.on_demand.track_future(call).await;
        runner.report(&run);
        Ok(run)
    }

    /// Returns the next tick of the job `name` by this machine's clock; `None` if it has no further tick.
    ///
    /// # Errors
    ///
    /// If no job has the name `name`.
    pub fn next_due(&self, name: &str) -> Result<Option<Timestamp>, InvalidInput> {
        let runner = self.jobs.runner(name)?;
        Ok(runner.job.schedule.next(runner.wall.now()))
    }

    /// Removes the mark of the job `name`, if a machine whose clock was ahead has written it. Ticks after the
    /// current time of this machine's clock run again. Earlier ticks do not count.
    ///
    /// Set the clocks right first, and call this on a machine whose clock is right. All schedulers
    /// notice within a minute. If the mark is not ahead of this clock, nothing changes.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown. If no job has that name, the kind is
    /// [`Refused`](StoreErrorKind::Refused).
    ///
    /// # Cancel safety
    ///
    /// Safe: the lease is released. The reset may have been applied or not.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_scheduler::{MarkReset, SchedulerHandle};
    ///
    /// async fn repair(handle: &SchedulerHandle) -> Result<(), lease_core::StoreError> {
    ///     match handle.reset_mark("nightly-report").await? {
    ///         MarkReset::Reset(mark) => println!("ticks up to {mark} run again"),
    ///         MarkReset::NotAhead => println!("no clock was ahead"),
    ///         MarkReset::Held(holder) => println!("{} runs the job", holder.lessee),
    ///         _ => (),
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn reset_mark(&self, name: &str) -> Result<MarkReset, StoreError> {
        let runner = self.jobs.runner(name);
        let runner = runner.map_err(|error| StoreError::new(StoreErrorKind::Refused, error))?;
        self.jobs.control.reset_mark(runner.job.name.as_str()).await
    }

    /// Returns the last runs of the job `name` on all machines, the latest first: up to the [length of its
    /// history](Job::history_length), and the current run. [`JobControl::history`] selects runs by time.
    ///
    /// A run without an end is [`Running`](crate::Ending::Running) if the store reports its lease as held;
    /// otherwise it is [`Died`](crate::Ending::Died).
    ///
    /// # Errors
    ///
    /// If the table does not answer, or the record cannot be read. If no job has that name, the kind is
    /// [`Refused`](StoreErrorKind::Refused).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn history(&self, name: &str) -> Result<Vec<PastRun>, StoreError> {
        let runner = self.jobs.runner(name);
        let runner = runner.map_err(|error| StoreError::new(StoreErrorKind::Refused, error))?;
        runner.past_runs().await
    }

    /// Returns the last run of the job `name`, which may still run; `None` if the job never ran.
    ///
    /// # Errors
    ///
    /// As for [`history`](Self::history).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn last_run(&self, name: &str) -> Result<Option<PastRun>, StoreError> {
        Ok(self.history(name).await?.into_iter().next())
    }
}
