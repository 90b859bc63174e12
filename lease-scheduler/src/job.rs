//! A job: a named piece of work, its schedule and its limits.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lease_core::store::Grant;
use lease_core::{Attributes, FencingToken, InvalidInput, LeaseKey, LeaseOptions, Switch};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::control::trigger::TriggerNumber;
use crate::schedule::{Misfire, Schedule};

/// Describes a piece of work that at most one machine of a fleet runs at a time. Its name is the key of
/// its lease.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_scheduler::{Concurrency, Job, Misfire, Schedule};
///
/// let nightly = Job::new("nightly-report".parse()?, |job| async move {
///     job.note("17 reports"); // for the history
///     Ok(())
/// })
/// .on(Schedule::cron("0 3 * * *", "Europe/Berlin")?)
/// .misfire(Misfire::CatchUpOnce)?
/// .timeout(Duration::from_secs(3600))?
/// .attempts(3)
/// .backoff(Duration::from_secs(5), Duration::from_secs(60))?
/// .lease_ttl(Duration::from_secs(60))?
/// .min_hold(Duration::from_secs(300))?
/// .concurrency(Concurrency::QueueOne)
/// .history_length(50)?
/// .only_if(|| std::env::var_os("PRODUCTION").is_some());
/// # drop(nightly);
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[must_use = "a job does nothing until a scheduler has it"]
pub struct Job {
    pub(crate) name: LeaseKey,
    pub(crate) work: Arc<dyn Work>,
    pub(crate) schedule: Schedule,
    pub(crate) misfire: Misfire,
    pub(crate) lease_ttl: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) min_hold: Duration,
    pub(crate) attempts: u32,
    pub(crate) backoff: Backoff,
    pub(crate) concurrency: Concurrency,
    pub(crate) history_length: usize,
    pub(crate) only_if: Box<dyn Fn() -> bool + Send + Sync>,
    pub(crate) switch: Option<Arc<dyn Switch>>,
}

/// Decides what happens to a [trigger](crate::JobControl::trigger) that arrives while the job runs, on any machine.
/// In all cases, one machine at a time runs the job.
///
/// A failed trigger that waits for its next attempt counts as a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_enums, reason = "a trigger waits or it does not")]
pub enum Concurrency {
    /// The trigger is answered with [`JobRuns`](crate::TriggerAnswer::JobRuns). The default: the caller learns
    /// at once that its arguments are not used.
    #[default]
    Forbid,
    /// One trigger waits for the end of the run. While it waits, further triggers are refused.
    QueueOne,
}

/// Why a body failed: any error, or a text.
pub type JobError = Box<dyn Error + Send + Sync>;

/// The result of a body.
pub type JobResult = Result<(), JobError>;

/// A job's body as a type of your own. Usually, an async function that takes a [`JobContext`] is enough.
///
/// The scheduler drops a body at its current await in four cases: the lease is lost, the scheduler is
/// dropped, the job's [timeout](Job::timeout) is over, or a stopping scheduler's grace is over. In each
/// case, and after a panic, the lease is released.
///
/// # Examples
///
/// ```
/// use async_trait::async_trait;
/// use lease_scheduler::{Job, JobContext, JobResult, Work};
///
/// struct Cleaning {
///     folder: String,
/// }
///
/// #[async_trait]
/// impl Work for Cleaning {
///     async fn run(&self, job: JobContext) -> JobResult {
///         job.note(format!("{} is clean", self.folder));
///         Ok(())
///     }
/// }
///
/// let job = Job::of("cleaning".parse()?, Cleaning { folder: "/tmp".to_owned() });
/// # drop(job);
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[async_trait]
pub trait Work: Send + Sync + 'static {
    /// Does the work once.
    ///
    /// # Errors
    ///
    /// If the work failed. The run then counts as failed, and its lease is released.
    ///
    /// # Cancel safety
    ///
    /// The scheduler may drop the call at any of its await points, in the four cases above.
    async fn run(&self, job: JobContext) -> JobResult;
}

/// A function as a job's body.
struct Function<F>(F);

#[async_trait]
impl<F, Body> Work for Function<F>
where
    F: Fn(JobContext) -> Body + Send + Sync + 'static,
    Body: Future<Output = JobResult> + Send + 'static,
{
    async fn run(&self, job: JobContext) -> JobResult {
        (self.0)(job).await
    }
}

/// Gives a body the data of its run.
#[derive(Debug, Clone)]
pub struct JobContext {
    pub(crate) grant: Grant,
    pub(crate) scheduled: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) arguments: Arc<Attributes>,
    pub(crate) trigger: Option<TriggerNumber>,
    pub(crate) cancelled: CancellationToken,
    pub(crate) note: Arc<Mutex<String>>,
}

impl JobContext {
    /// Returns the name of the job.
    pub fn name(&self) -> &LeaseKey {
        &self.grant.key
    }

    /// Returns the token of the job's lease. Send it with every write, so that the receiver can refuse
    /// older tokens: see [`lease_core::fence`].
    pub fn token(&self) -> FencingToken {
        self.grant.token
    }

    /// Returns the grant of the job's lease, for writes to the job's own record in the table. This crate
    /// uses attributes whose names begin with `job_`.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns the tick of this run: the same time for each attempt, on each machine. For a run on
    /// demand, it is the time of the call. For a trigger, it is the time at which the trigger was sent.
    pub fn scheduled(&self) -> Timestamp {
        self.scheduled
    }

    /// Returns the number of this attempt at its tick or trigger, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the arguments of the trigger that started this run; empty for a tick and for
    /// [`run_now`](crate::SchedulerHandle::run_now).
    pub fn arguments(&self) -> &Attributes {
        &self.arguments
    }

    /// Returns the number of the trigger that started this run, if a trigger did.
    pub fn trigger(&self) -> Option<TriggerNumber> {
        self.trigger
    }

    /// Returns a cancellation token, which is cancelled when the scheduler stops or the lease is about to be
    /// lost. If the body does not end soon after, the scheduler drops it.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Stores `note` with the run in its history: the result, in a few words. Replaces an earlier note.
    /// Characters after the first 200 are cut off.
    pub fn note(&self, note: impl Into<String>) {
        let cut = note.into().chars().take(LONGEST_NOTE).collect();
        *self.note.lock() = cut;
    }
}

impl Job {
    /// Creates a job whose body is an async function. Without a [schedule](Self::on), it runs on demand
    /// only: [`run_now`](crate::SchedulerHandle::run_now).
    pub fn new<F, Body>(name: LeaseKey, body: F) -> Self
    where
        F: Fn(JobContext) -> Body + Send + Sync + 'static,
        Body: Future<Output = JobResult> + Send + 'static,
    {
        Self::of(name, Function(body))
    }

    /// Creates a job whose body is a type of your own.
    pub fn of(name: LeaseKey, work: impl Work) -> Self {
        Self {
            name,
            work: Arc::new(work),
            schedule: Schedule::on_demand(),
            misfire: Misfire::default(),
            lease_ttl: None,
            timeout: None,
            min_hold: Duration::ZERO,
            attempts: 1,
            backoff: Backoff::default(),
            concurrency: Concurrency::default(),
            history_length: 10,
            only_if: Box::new(|| true),
            switch: None,
        }
    }

    /// Runs the job on `schedule`. All machines must have the same schedule.
    pub fn on(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule.for_job(&self.name);
        self
    }

    /// Sets how late a tick may start, or whether it is caught up. By default a tick may start up to a
    /// minute late.
    ///
    /// # Errors
    ///
    /// If a tick may start less than a second late: timers and networks are not that exact.
    pub fn misfire(mut self, misfire: Misfire) -> Result<Self, InvalidInput> {
        if let Misfire::StartWithin(length) = misfire
            && length < Duration::from_secs(1)
        {
            return Err(InvalidInput::new(format!(
                "a tick of {} may start {length:?} late: the least is a second",
                self.name
            )));
        }
        self.misfire = misfire;
        Ok(self)
    }

    /// Sets the ttl of the job's lease: the time after a holder's death in which no other machine can start the
    /// job. By default the locker's ttl. The locker's other options stay as they are.
    ///
    /// A body may run for longer than the ttl, since heartbeats extend the lease.
    /// [`timeout`](Self::timeout) limits the body.
    ///
    /// # Errors
    ///
    /// If `ttl` is not [`LeaseOptions::MIN_TTL`] to [`LeaseOptions::MAX_TTL`].
    pub fn lease_ttl(mut self, ttl: Duration) -> Result<Self, InvalidInput> {
        let _in_range = LeaseOptions::new(ttl)?;
        self.lease_ttl = Some(ttl);
        Ok(self)
    }

    /// Drops a body that runs for longer than `timeout`, which must not be zero. The run has then [timed
    /// out](crate::Outcome::TimedOut), which counts as a failure, and its lease is released. By
    /// default the job has no timeout.
    ///
    /// Without a timeout, a body that hangs holds its lease, and the job runs on no machine. The
    /// scheduler warns when a run takes longer than the time to its next tick.
    ///
    /// # Errors
    ///
    /// If `timeout` is zero.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, InvalidInput> {
        if timeout.is_zero() {
            return Err(InvalidInput::new(format!("the timeout of {} is zero", self.name)));
        }
        self.timeout = Some(timeout);
        Ok(self)
    }

    /// Keeps the key unavailable until `length` after the grant, at most 7 days, even if the body ended
    /// earlier. By default the key is free when the run ends.
    ///
    /// This limits how often [runs on demand](crate::SchedulerHandle::run_now) follow each other. Ticks do
    /// not need it, since no tick runs twice. If the lease was lost or the scheduler was dropped, the key
    /// is not kept.
    ///
    /// # Errors
    ///
    /// If `length` is more than [`LeaseOptions::MAX_RESERVATION`], seven days.
    pub fn min_hold(mut self, length: Duration) -> Result<Self, InvalidInput> {
        let longest = LeaseOptions::MAX_RESERVATION;
        if length > longest {
            return Err(InvalidInput::new(format!(
                "the minimum hold of {}, {length:?}, is out of range: at most seven days",
                self.name
            )));
        }
        self.min_hold = length;
        Ok(self)
    }

    /// Starts a tick or a trigger up to `attempts` times, until its body has finished. By default 1, since a body
    /// may not be safe to repeat. 0 counts as 1.
    ///
    /// [`Misfire::StartWithin`] limits how late the first attempt may start. The other attempts follow until
    /// the next tick is due, even if the first one took long. Attempts at a trigger follow until a later
    /// trigger starts. After a failure or a timeout, the next attempt
    /// waits for the [backoff](Self::backoff). After the death of the machine, it waits until the lease has
    /// expired.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Sets the pauses between attempts at a tick or a trigger: `first` before the second attempt, then twice as long
    /// each time, up to `longest`. By default 1 s, doubled up to a minute: most failures are short, and
    /// a long outage should not cause sixty attempts a minute. Zero starts the next attempt at once.
    ///
    /// The key is reserved during a pause. So every machine waits, even if its clock is wrong, and
    /// [`run_now`](crate::SchedulerHandle::run_now) finds the key held. A pause ends when the next tick is
    /// due.
    ///
    /// # Errors
    ///
    /// If `first` is longer than `longest`, or `longest` than [`LeaseOptions::MAX_RESERVATION`].
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Result<Self, InvalidInput> {
        if first > longest || longest > LeaseOptions::MAX_RESERVATION {
            return Err(InvalidInput::new(format!(
                "backoff {first:?} to {longest:?} of {} is out of range: the first pause is at most \
                 the longest, and the longest is at most seven days",
                self.name
            )));
        }
        self.backoff = Backoff { first, longest };
        Ok(self)
    }

    /// Sets what happens to a trigger that arrives while the job runs. By default, [`Concurrency::Forbid`].
    pub fn concurrency(mut self, concurrency: Concurrency) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Keeps the last `runs` runs in the history, 1 to 200. By default ten, which take about 2 kB. The end of each
    /// run writes them all: with ten, two write units of `DynamoDB`.
    ///
    /// # Errors
    ///
    /// If `runs` is out of range. Two hundred runs with long notes fit into a record of `DynamoDB`.
    pub fn history_length(mut self, runs: usize) -> Result<Self, InvalidInput> {
        if !(1..=LONGEST_HISTORY).contains(&runs) {
            return Err(InvalidInput::new(format!(
                "a history of {runs} runs of {} is out of range: 1 to {LONGEST_HISTORY}",
                self.name
            )));
        }
        self.history_length = runs;
        Ok(self)
    }

    /// Runs the job only on machines where `condition` returns true: in production, for example. The
    /// scheduler calls it before each run. A condition that panics ends the scheduler.
    pub fn only_if(mut self, condition: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.only_if = Box::new(condition);
        self
    }

    /// Runs the job only while `switch` is on. The scheduler reads the switch before each run.
    pub fn with_switch(mut self, switch: impl Switch) -> Self {
        self.switch = Some(Arc::new(switch));
        self
    }

    /// Returns the job's name.
    pub fn name(&self) -> &LeaseKey {
        &self.name
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("name", &self.name)
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}

/// The pauses between attempts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Returns the pause after an attempt. Attempts are numbered from 1.
    pub(crate) fn after(self, attempt: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

/// The maximum number of runs in a history.
const LONGEST_HISTORY: usize = 200;

/// The maximum length of a note, in characters.
pub(crate) const LONGEST_NOTE: usize = 200;
