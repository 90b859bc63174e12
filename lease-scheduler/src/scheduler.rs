//! All jobs of a process: begun, asked for, and stopped together.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lease_core::{InvalidInput, LeaseKey, LeaseTable, Locker, StoreError, StoreErrorKind};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::account::MarkReset;
use crate::clock::{SystemWallClock, WallClock};
use crate::history::PastRun;
use crate::job::Job;
use crate::outcome::{JobMetrics, Run, Uncounted};
use crate::run::Runner;
use crate::ticking::Ticking;

/// Runs jobs: in each process the same ones, and each run in one of them.
///
/// # Examples
///
/// ```no_run
/// use lease_core::{LeaseTable, Locker};
/// use lease_scheduler::{Job, Schedule, Scheduler};
///
/// # async fn run(table: impl LeaseTable + Clone) -> Result<(), Box<dyn std::error::Error>> {
/// let nightly = Job::new("nightly-report".parse()?, |_job| async { Ok(()) })
///     .on(Schedule::cron("0 3 * * *", "Europe/Berlin")?);
///
/// let locker = Locker::new(table.clone());
/// let scheduler = Scheduler::builder(locker, table).with_job(nightly).build()?;
/// let handle = scheduler.handle();
/// tokio::spawn(async move {
///     told_to_stop().await; // by a signal, say
///     handle.stop(); // what runs may come to its end
/// });
/// scheduler.run().await;
/// # Ok(())
/// # }
/// # async fn told_to_stop() {}
/// ```
#[derive(Debug)]
#[must_use = "a scheduler does nothing until it runs"]
pub struct Scheduler {
    shared: Arc<Shared>,
}

/// Sets up a [`Scheduler`].
#[must_use = "a builder does nothing until it builds"]
pub struct SchedulerBuilder {
    locker: Locker,
    table: Arc<dyn LeaseTable>,
    jobs: Vec<Job>,
    grace: Duration,
    wall: Arc<dyn WallClock>,
    metrics: Arc<dyn JobMetrics>,
}

/// Asks a [`Scheduler`] for runs, and tells it to stop. Clones are of the same scheduler.
#[derive(Debug, Clone)]
pub struct SchedulerHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    runners: BTreeMap<LeaseKey, Arc<Runner>>,
    stopping: CancellationToken,
    /// Runs that were asked for, in tasks that are not ours.
    asked_for: TaskTracker,
}

impl Scheduler {
    /// Sets up a scheduler on `locker` and `table`, which must be of the same store.
    pub fn builder(locker: Locker, table: impl LeaseTable) -> SchedulerBuilder {
        SchedulerBuilder {
            locker,
            table: Arc::new(table),
            jobs: Vec::new(),
            grace: Duration::from_secs(30),
            wall: Arc::new(SystemWallClock::new()),
            metrics: Arc::new(Uncounted),
        }
    }

    /// A handle on it, which also works while it does not run yet.
    pub fn handle(&self) -> SchedulerHandle {
        SchedulerHandle { shared: Arc::clone(&self.shared) }
    }

    /// Runs jobs as they come due, until a handle says [`stop`](SchedulerHandle::stop). Then nothing
    /// new is begun, bodies get their grace, and their leases are given back.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped, it drops the bodies of scheduled jobs where they stand, and gives back their
    /// leases. The ticks that they were begun for are not begun again, unless
    /// [more attempts](Job::attempts) are allowed.
    ///
    /// # Panics
    ///
    /// Where a job's [condition](Job::only_if) or the [metrics](JobMetrics) panic. A body that
    /// panics has failed, and nothing else.
    pub async fn run(self) {
        let Shared { runners, stopping, asked_for } = &*self.shared;
        let mut tasks = JoinSet::new();
        for runner in runners.values().filter(|runner| !runner.job.schedule.is_on_demand()) {
            tasks.spawn(Ticking::new(Arc::clone(runner)).run());
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                resume_unwind(error.into_panic());
            }
        }
        stopping.cancelled().await;
        asked_for.close();
        asked_for.wait().await;
        for runner in runners.values() {
            runner.locker.close().await;
        }
    }
}

impl SchedulerBuilder {
    /// Adds a job. Give all processes the same jobs.
    pub fn with_job(mut self, job: Job) -> Self {
        self.jobs.push(job);
        self
    }

    /// Gives bodies `grace` to come to their end, once the scheduler is to stop. By default 30 s, as
    /// long as Kubernetes gives a pod.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Reads the time of day from `wall`: for tests.
    pub fn with_wall_clock(mut self, wall: Arc<dyn WallClock>) -> Self {
        self.wall = wall;
        self
    }

    /// Tells `metrics` what comes of runs.
    pub fn with_metrics(mut self, metrics: Arc<dyn JobMetrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// The scheduler, which begins with [`run`](Scheduler::run).
    ///
    /// # Errors
    ///
    /// If two jobs have one name, or a job's [ttl](Job::at_most) is too short for the locker's
    /// heartbeats.
    pub fn build(self) -> Result<Scheduler, InvalidInput> {
        let stopping = CancellationToken::new();
        let mut runners = BTreeMap::new();
        for job in self.jobs {
            let name = job.name.clone();
            let locker = self.locker.clone();
            let runner = Runner {
                locker: match job.ttl {
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
                return Err(InvalidInput::new(format!("two jobs are called {name}")));
            }
        }
        let asked_for = TaskTracker::new();
        Ok(Scheduler { shared: Arc::new(Shared { runners, stopping, asked_for }) })
    }
}

impl SchedulerHandle {
    /// Tells the scheduler to stop; [`run`](Scheduler::run) returns when it has.
    pub fn stop(&self) {
        self.shared.stopping.cancel();
    }

    /// Runs the job called `name` now, on this machine, if nobody else does and it is not switched
    /// off; tells what came of it. Uses up no tick, and is not kept from running by one that was run.
    ///
    /// # Errors
    ///
    /// Where no job is called `name`.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped, it drops the body where it stands, and gives back its lease.
    pub async fn run_now(&self, name: &str) -> Result<Run, InvalidInput> {
        let runner = self.runner(name)?;
        let run = self.shared.asked_for.track_future(runner.run_now()).await;
        runner.tell(&run);
        Ok(run)
    }

    /// When the job called `name` is next to be run, by this machine's clock; `None` where it is not
    /// to be, unless somebody asks for it.
    ///
    /// # Errors
    ///
    /// Where no job is called `name`.
    pub fn next_due(&self, name: &str) -> Result<Option<Timestamp>, InvalidInput> {
        let runner = self.runner(name)?;
        Ok(runner.job.schedule.next(runner.wall.now()))
    }

    /// Forgets marks that a clock that was ahead has left for the job called `name`: ticks after now,
    /// by this machine's clock, are run again. Ticks up to now do not count.
    ///
    /// Set the clocks right first, and call this on a machine whose clock is right. All schedulers
    /// notice within a minute. If no mark is ahead of this clock, nothing is changed.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown. No job of that name is of kind
    /// [`Refused`](StoreErrorKind::Refused).
    ///
    /// # Cancel safety
    ///
    /// Safe: the lease is released. Whether the mark was reset is unknown then.
    pub async fn reset_mark(&self, name: &str) -> Result<MarkReset, StoreError> {
        let runner = self.runner(name);
        let runner = runner.map_err(|error| StoreError::new(StoreErrorKind::Refused, error))?;
        runner.reset_mark().await
    }

    /// The last runs of the job called `name`, on whichever machine, the last one first: up to ten,
    /// and the one that runs now.
    ///
    /// A run without an end is [`Running`](crate::Ending::Running) if the store says that its lease is
    /// held, and has [`Died`](crate::Ending::Died) otherwise.
    ///
    /// # Errors
    ///
    /// Where the table could not say. No job of that name is of kind
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

    /// The last run of the job called `name`; `None` where there was none. It may still go on.
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
        runner.ok_or_else(|| InvalidInput::new(format!("no job is called {name:?}")))
    }
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerBuilder").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}
