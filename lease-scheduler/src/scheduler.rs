//! The scheduler: starts the tasks that run the jobs of a process, and stops them.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::LeaseTable;
use lease_core::{InvalidInput, Locker};
use parking_lot::RwLock;
use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{SystemWallClock, WallClock};
use crate::command_loop::CommandLoop;
use crate::control::JobControl;
use crate::handle::SchedulerHandle;
use crate::job::Job;
use crate::job_set::{JobSet, Settings};
use crate::outcome::{JobMetrics, NoMetrics};
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
    jobs: Arc<JobSet>,
    /// The jobs that were added, until their tasks start.
    added: UnboundedReceiver<Arc<Runner>>,
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
    jobs: Vec<Job>,
    settings: Settings,
}

impl Scheduler {
    /// Returns a builder of a scheduler on `locker` and `table`, which must belong to the same store.
    pub fn builder(locker: Locker, table: impl LeaseTable) -> SchedulerBuilder {
        SchedulerBuilder {
            jobs: Vec::new(),
            settings: Settings {
                locker,
                table: Arc::new(table),
                grace: Duration::from_secs(30),
                command_poll: Duration::from_millis(500),
                wall: Arc::new(SystemWallClock::new()),
                metrics: Arc::new(NoMetrics),
            },
        }
    }

    /// Returns a handle. The handle also works before the scheduler runs.
    pub fn handle(&self) -> SchedulerHandle {
        SchedulerHandle { jobs: Arc::clone(&self.jobs) }
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
    pub async fn run(mut self) {
        let JobSet { runners, stopping, on_demand, control, .. } = &*self.jobs;
        let mut tasks = JoinSet::new();
        loop {
            select! {
                // Polls the stop first: afterwards, the scheduler starts no task.
                biased;
                () = stopping.cancelled() => break,
                Some(runner) = self.added.recv() => {
                    if !runner.job.schedule.is_on_demand() {
                        let ticks = TickLoop::new(Arc::clone(&runner)).run();
                        tasks.spawn(runner.tasks.track_future(ticks));
                    }
                    let commands = CommandLoop::new(Arc::clone(&runner)).run();
                    tasks.spawn(runner.tasks.track_future(commands));
                }
                Some(ended) = tasks.join_next() => resume_panic(ended),
            }
        }
        while let Some(ended) = tasks.join_next().await {
            resume_panic(ended);
        }
        on_demand.close();
        on_demand.wait().await;
        let runners: Vec<_> = runners.read().values().cloned().collect();
        for runner in runners {
            runner.locker.close().await;
        }
        control.close().await;
    }
}

fn resume_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        resume_unwind(error.into_panic());
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
        self.settings.grace = grace;
        self
    }

    /// Sets how often each job's control record is read for triggers, if the store cannot report its changes. By
    /// default every 500 ms, so that a trigger starts within a second: each process then sends two reads per job
    /// and second. `DynamoDB` charges for reads. Stores with notifications, such as Redis and `PostgreSQL`, are
    /// read every ten seconds instead.
    ///
    /// A pause does not need these reads: each tick reads the record.
    pub fn with_command_poll(mut self, interval: Duration) -> Self {
        self.settings.command_poll = interval.max(SHORTEST_POLL);
        self
    }

    /// Reads the time of day from `wall`: for tests.
    pub fn with_wall_clock(mut self, wall: Arc<dyn WallClock>) -> Self {
        self.settings.wall = wall;
        self
    }

    /// Reports the outcome of each run to `metrics`.
    pub fn with_metrics(mut self, metrics: Arc<dyn JobMetrics>) -> Self {
        self.settings.metrics = metrics;
        self
    }

    /// Builds the scheduler. Call [`run`](Scheduler::run) to start it.
    ///
    /// # Errors
    ///
    /// If two jobs have the same name, the name of a job ends with `/control`, or a job's [ttl](Job::lease_ttl) is too
    /// short for the locker's heartbeats.
    pub fn build(self) -> Result<Scheduler, InvalidInput> {
        let settings = self.settings;
        let (table, wall) = (Arc::clone(&settings.table), Arc::clone(&settings.wall));
        let (add, added) = unbounded_channel();
        let jobs = JobSet {
            control: JobControl::on(&settings.locker, table, wall),
            settings,
            runners: RwLock::default(),
            add,
            stopping: CancellationToken::new(),
            on_demand: TaskTracker::new(),
        };
        for job in self.jobs {
            jobs.add_job(job)?;
        }
        Ok(Scheduler { jobs: Arc::new(jobs), added })
    }
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerBuilder").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

const SHORTEST_POLL: Duration = Duration::from_millis(10);
