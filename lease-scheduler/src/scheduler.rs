//! The scheduler: runs the jobs of a process on schedule and on demand, and stops them.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lease_core::store::LeaseTable;
use lease_core::{InvalidInput, LeaseKey, Locker, StoreError, StoreErrorKind};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{SystemWallClock, WallClock};
use crate::history::PastRun;
use crate::job::Job;
use crate::outcome::{JobMetrics, NoMetrics, Run};
use crate::reconcile::MarkReset;
use crate::run::Runner;
use crate::tick_loop::TickLoop;

/// Runs jobs on schedule: every process has the same jobs, and each tick runs in one process.
///
/// # Examples
///
/// Any store that implements [`LeaseTable`] works, such as `RedisStore` or `DynamoDbStore`:
///
/// ```
/// use std::time::Duration;
/// use lease_core::Locker;
/// use lease_memory::MemoryStore;
/// use lease_scheduler::{Job, Schedule, Scheduler};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cleaning = Job::new("cleaning".parse()?, |job| async move {
///     job.note("3 files removed"); // for the history
///     Ok(())
/// })
/// .on(Schedule::every(Duration::from_millis(100))?);
///
/// let store = MemoryStore::new();
/// let locker = Locker::new(store.clone());
/// let scheduler = Scheduler::builder(locker, store).with_job(cleaning).build()?;
/// let handle = scheduler.handle();
/// let running = tokio::spawn(scheduler.run());
///
/// while handle.last_run("cleaning").await?.is_none() {
///     tokio::time::sleep(Duration::from_millis(20)).await;
/// }
/// handle.stop(); // running bodies have 30 s to end
/// running.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a scheduler does nothing until it runs"]
pub struct Scheduler {
    shared: Arc<Shared>,
}

/// Sets up a [`Scheduler`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::Locker;
/// use lease_memory::MemoryStore;
/// use lease_scheduler::{Job, Schedule, Scheduler};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let report = Job::new("report".parse()?, |_job| async { Ok(()) })
///     .on(Schedule::cron("0 3 * * *", "Europe/Berlin")?);
/// let cleaning = Job::new("cleaning".parse()?, |_job| async { Ok(()) })
///     .on(Schedule::every(Duration::from_secs(600))?);
///
/// let store = MemoryStore::new();
/// let scheduler = Scheduler::builder(Locker::new(store.clone()), store)
///     .with_job(report)
///     .with_job(cleaning)
///     .with_grace(Duration::from_secs(10)) // the supervisor kills this process after 15 s
///     .build()?;
/// assert!(scheduler.handle().next_due("report")?.is_some());
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct SchedulerBuilder {
    locker: Locker,
    table: Arc<dyn LeaseTable>,
    jobs: Vec<Job>,
    grace: Duration,
    wall: Arc<dyn WallClock>,
    metrics: Arc<dyn JobMetrics>,
}

/// Requests runs from a [`Scheduler`], reads histories, and stops the scheduler. Clones control the same
/// scheduler.
#[derive(Debug, Clone)]
pub struct SchedulerHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    runners: BTreeMap<LeaseKey, Arc<Runner>>,
    stopping: CancellationToken,
    /// The runs on demand, which execute in the tasks of their callers.
    on_demand: TaskTracker,
}

impl Scheduler {
    /// Returns a builder of a scheduler on `locker` and `table`, which must belong to the same store.
    pub fn builder(locker: Locker, table: impl LeaseTable) -> SchedulerBuilder {
        SchedulerBuilder {
            locker,
            table: Arc::new(table),
            jobs: Vec::new(),
            grace: Duration::from_secs(30),
            wall: Arc::new(SystemWallClock::new()),
            metrics: Arc::new(NoMetrics),
        }
    }

    /// Returns a handle. The handle also works before the scheduler runs.
    pub fn handle(&self) -> SchedulerHandle {
        SchedulerHandle { shared: Arc::clone(&self.shared) }
    }

    /// Runs jobs as they come due, until a handle calls [`stop`](SchedulerHandle::stop). It then starts no
    /// further run, gives bodies their grace, and releases their leases.
    ///
    /// # Cancel safety
    ///
    /// Safe. If this future is dropped, the bodies of scheduled jobs are dropped at their current await,
    /// and their leases are released. Their ticks are not started again, unless [more
    /// attempts](Job::attempts) are allowed.
    ///
    /// # Panics
    ///
    /// If a job's [condition](Job::only_if) or the [metrics](JobMetrics) panic. A body that panics only
    /// counts as failed.
    pub async fn run(self) {
        let Shared { runners, stopping, on_demand } = &*self.shared;
        let mut tasks = JoinSet::new();
        for runner in runners.values().filter(|runner| !runner.job.schedule.is_on_demand()) {
            tasks.spawn(TickLoop::new(Arc::clone(runner)).run());
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                resume_unwind(error.into_panic());
            }
        }
        stopping.cancelled().await;
        on_demand.close();
        on_demand.wait().await;
        for runner in runners.values() {
            runner.locker.close().await;
        }
    }
}

impl SchedulerBuilder {
    /// Adds a job. All processes must have the same jobs.
    pub fn with_job(mut self, job: Job) -> Self {
        self.jobs.push(job);
        self
    }

    /// Sets how long bodies may still run after a stop of the scheduler. By default 30 s, the time that
    /// Kubernetes gives a pod.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Reads the time of day from `wall`: for tests.
    pub fn with_wall_clock(mut self, wall: Arc<dyn WallClock>) -> Self {
        self.wall = wall;
        self
    }

    /// Reports the outcome of each run to `metrics`.
    pub fn with_metrics(mut self, metrics: Arc<dyn JobMetrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Builds the scheduler. Call [`run`](Scheduler::run) to start it.
    ///
    /// # Errors
    ///
    /// If two jobs have the same name, or a job's [ttl](Job::lease_ttl) is too short for the locker's
    /// heartbeats.
    pub fn build(self) -> Result<Scheduler, InvalidInput> {
        let stopping = CancellationToken::new();
        let mut runners = BTreeMap::new();
        for mut job in self.jobs {
            let name = job.name.clone();
            let locker = self.locker.clone();
            let runner = Runner {
                locker: match job.lease_ttl.take() {
                    Some(ttl) => {
                        let options = locker.options().clone().with_ttl(ttl)?;
                        locker.with_options(options)
                    }
                    None => locker,
                },
                job,
                table: Arc::clone(&self.table),
                wall: Arc::clone(&self.wall),
                metrics: Arc::clone(&self.metrics),
                stopping: stopping.clone(),
                grace: self.grace,
            };
            if runners.insert(name.clone(), Arc::new(runner)).is_some() {
                return Err(InvalidInput::new(format!("two jobs have the name {name}")));
            }
        }
        let on_demand = TaskTracker::new();
        Ok(Scheduler { shared: Arc::new(Shared { runners, stopping, on_demand }) })
    }
}

impl SchedulerHandle {
    /// Stops the scheduler. [`run`](Scheduler::run) returns when all bodies have ended.
    pub fn stop(&self) {
        self.shared.stopping.cancel();
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
        let runner = self.runner(name)?;
        let run = self.shared.on_demand.track_future(runner.run_now()).await;
        runner.report(&run);
        Ok(run)
    }

    /// Returns the next tick of the job `name` by this machine's clock; `None` if it has no further tick.
    ///
    /// # Errors
    ///
    /// If no job has the name `name`.
    pub fn next_due(&self, name: &str) -> Result<Option<Timestamp>, InvalidInput> {
        let runner = self.runner(name)?;
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
        let runner = self.runner(name);
        let runner = runner.map_err(|error| StoreError::new(StoreErrorKind::Refused, error))?;
        runner.reset_mark().await
    }

    /// Returns the last runs of the job `name` on all machines, the latest first: up to ten, and the
    /// current run.
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
        let runner = self.runner(name);
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

    fn runner(&self, name: &str) -> Result<&Runner, InvalidInput> {
        let runner = self.shared.runners.get(name).map(|runner| &**runner);
        runner.ok_or_else(|| InvalidInput::new(format!("no job has the name {name:?}")))
    }
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerBuilder").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}
