//! The scheduler: runs the jobs of a process on schedule and on demand, and stops them.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lease_core::store::LeaseTable;
use lease_core::{InvalidInput, LeaseKey, Locker, StoreError, StoreErrorKind};
use parking_lot::RwLock;
use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{SystemWallClock, WallClock};
use crate::command_loop::CommandLoop;
use crate::control::{JobControl, JobStatus, control_key, job_of};
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

/// Adds, lists, runs and removes the jobs of a [`Scheduler`], reads histories, and stops the scheduler. Clones
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
    shared: Arc<Shared>,
}

/// What all jobs of a scheduler share.
#[derive(Debug)]
struct Settings {
    locker: Locker,
    table: Arc<dyn LeaseTable>,
    grace: Duration,
    command_poll: Duration,
    wall: Arc<dyn WallClock>,
    metrics: Arc<dyn JobMetrics>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    control: JobControl,
    runners: RwLock<BTreeMap<LeaseKey, Arc<Runner>>>,
    add: UnboundedSender<Arc<Runner>>,
    stopping: CancellationToken,
    /// The runs on demand, which execute in the tasks of their callers.
    on_demand: TaskTracker,
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
    pub async fn run(mut self) {
        let Shared { runners, stopping, on_demand, control, .. } = &*self.shared;
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
        let shared = Shared {
            control: JobControl::on(&settings.locker, table, wall),
            settings,
            runners: RwLock::default(),
            add,
            stopping: CancellationToken::new(),
            on_demand: TaskTracker::new(),
        };
        for job in self.jobs {
            shared.add_job(job)?;
        }
        Ok(Scheduler { shared: Arc::new(shared), added })
    }
}

impl Shared {
    fn add_job(&self, mut job: Job) -> Result<(), InvalidInput> {
        let Settings { locker, table, grace, command_poll, wall, metrics } = &self.settings;
        let name = job.name.clone();
        let _key = control_key(&name)?;
        if job_of(&name).is_some() {
            return Err(InvalidInput::new(format!(
                "the name {name} ends like the key of a control record: choose another name"
            )));
        }
        let locker = match job.lease_ttl.take() {
            Some(ttl) => {
                let options = locker.options().clone().with_ttl(ttl)?;
                locker.clone().with_options(options)
            }
            None => locker.clone(),
        };
        let runner = Arc::new(Runner {
            job,
            locker,
            table: Arc::clone(table),
            control: self.control.clone(),
            command_poll: *command_poll,
            wall: Arc::clone(wall),
            metrics: Arc::clone(metrics),
            stopping: self.stopping.child_token(),
            grace: *grace,
            tasks: TaskTracker::new(),
        });
        let mut runners = self.runners.write();
        if runners.contains_key(&name) {
            return Err(InvalidInput::new(format!("two jobs have the name {name}")));
        }
        // An error means that the scheduler was dropped. Then the job runs only on demand.
        drop(self.add.send(Arc::clone(&runner)));
        runners.insert(name, runner);
        Ok(())
    }
}

impl SchedulerHandle {
    /// Stops the scheduler. [`run`](Scheduler::run) returns when all bodies have ended.
    pub fn stop(&self) {
        self.shared.stopping.cancel();
    }

    /// Adds a job while the scheduler runs. All processes should add the same jobs. If the table has no record of the
    /// job, its ticks count from now on. Otherwise they count from the mark in the record, so the ticks between count
    /// as missed or are caught up.
    ///
    /// # Errors
    ///
    /// As for [`build`](SchedulerBuilder::build).
    pub fn add_job(&self, job: Job) -> Result<(), InvalidInput> {
        self.shared.add_job(job)
    }

    /// Removes the job `name` from this scheduler, and waits until its run on this machine has ended. A body
    /// has the [grace](SchedulerBuilder::with_grace) of a stop. Returns false if no job has the name.
    ///
    /// Other processes keep the job, and the table keeps its record. If the job is added again, it continues with
    /// its marks, and the ticks between count as missed or are caught up.
    ///
    /// # Cancel safety
    ///
    /// Safe: the job is removed, and its body may still run.
    pub async fn remove_job(&self, name: &str) -> bool {
        let removed = self.shared.runners.write().remove(name);
        let Some(runner) = removed else { return false };
        runner.stopping.cancel();
        runner.tasks.close();
        runner.tasks.wait().await;
        true
    }

    /// Returns the names of this scheduler's jobs, in order.
    pub fn job_names(&self) -> Vec<LeaseKey> {
        self.shared.runners.read().keys().cloned().collect()
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
            jobs.extend(self.shared.control.job(name.as_str()).await?);
        }
        Ok(jobs)
    }

    /// Returns a control of all jobs in the table, also those of other processes: pause, resume, trigger, and
    /// queries of the history.
    pub fn control(&self) -> JobControl {
        self.shared.control.clone()
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
        let call = runner.tasks.track_future(runner.run_now());
        let run = self.shared.on_demand.track_future(call).await;
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
        self.shared.control.reset_mark(runner.job.name.as_str()).await
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

    fn runner(&self, name: &str) -> Result<Arc<Runner>, InvalidInput> {
        let runner = self.shared.runners.read().get(name).cloned();
        runner.ok_or_else(|| InvalidInput::new(format!("no job has the name {name:?}")))
    }
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerBuilder").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

const SHORTEST_POLL: Duration = Duration::from_millis(10);
