//! A piece of work with a name, and all that is to be known of how to run it.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lease_core::{FencingToken, Grant, InvalidInput, LeaseKey, LeaseOptions};
use tokio_util::sync::CancellationToken;

use crate::schedule::{Missed, Schedule};
use crate::switch::Switch;

/// A piece of work that runs once, somewhere: its name is the key of its lease.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_scheduler::{Job, Missed, Schedule};
///
/// let nightly = Job::new("nightly-report".parse()?, |job| async move {
///     job.note("17 reports"); // for whoever reads the history
///     Ok(())
/// })
/// .on(Schedule::cron("0 3 * * *", "Europe/Berlin")?)
/// .missed(Missed::CatchUpOnce)?
/// .at_most(Duration::from_secs(60))?
/// .at_least(Duration::from_secs(300))?
/// .only_if(|| std::env::var_os("PRODUCTION").is_some());
/// # drop(nightly);
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[must_use = "a job does nothing until a scheduler has it"]
pub struct Job {
    pub(crate) name: LeaseKey,
    pub(crate) work: Arc<dyn Work>,
    pub(crate) schedule: Schedule,
    pub(crate) missed: Missed,
    pub(crate) ttl: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) at_least: Duration,
    pub(crate) attempts: u32,
    pub(crate) backoff: Backoff,
    pub(crate) only_if: Box<dyn Fn() -> bool + Send + Sync>,
    pub(crate) switch: Option<Arc<dyn Switch>>,
}

/// Why a body did not do what it was to do: any error, or a text.
pub type JobError = Box<dyn Error + Send + Sync>;

/// What a body answers.
pub type JobResult = Result<(), JobError>;

/// A job's body, as a type of your own; mostly an async function of a [`JobContext`] will do.
///
/// It is dropped at whichever await it stands when its lease is lost, when its scheduler is dropped,
/// and when it is not done within the grace of a scheduler that stops. Then, and after a panic, the
/// lease is given back all the same.
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
    /// Where it could not: the run has then failed, and its lease is given back.
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

/// What a body is told of its run.
#[derive(Debug, Clone)]
pub struct JobContext {
    pub(crate) grant: Grant,
    pub(crate) scheduled: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) cancelled: CancellationToken,
    pub(crate) note: Arc<Mutex<String>>,
}

impl JobContext {
    /// The name of the job.
    pub fn name(&self) -> &LeaseKey {
        &self.grant.key
    }

    /// The token of its lease. Send it along with every write, so that what you write to can refuse
    /// older ones: see [`lease_core::fence`].
    pub fn token(&self) -> FencingToken {
        self.grant.token
    }

    /// The grant of its lease, for writes to the job's own record in the table. The names that this
    /// crate uses there begin with `job_`.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// When this run was to be: the same for each attempt at a tick, whoever makes it. The time of
    /// the call, where it was asked for by hand.
    pub fn scheduled(&self) -> Timestamp {
        self.scheduled
    }

    /// Which attempt at its tick this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Is cancelled when there is little time left: the scheduler stops, or the lease is about to be
    /// lost. Wind down then, or be dropped.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Keeps `note` with the run, for its history: what it came to, in a few words. Replaces an
    /// earlier one; cut off after 200 characters.
    pub fn note(&self, note: impl Into<String>) {
        let cut = note.into().chars().take(LONGEST_NOTE).collect();
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = cut;
    }
}

impl Job {
    /// A job whose body is an async function. It runs when it is asked to, until it is given a
    /// [schedule](Self::on).
    pub fn new<F, Body>(name: LeaseKey, body: F) -> Self
    where
        F: Fn(JobContext) -> Body + Send + Sync + 'static,
        Body: Future<Output = JobResult> + Send + 'static,
    {
        Self::of(name, Function(body))
    }

    /// A job whose body is a type of your own.
    pub fn of(name: LeaseKey, work: impl Work) -> Self {
        Self {
            name,
            work: Arc::new(work),
            schedule: Schedule::on_demand(),
            missed: Missed::default(),
            ttl: None,
            timeout: None,
            at_least: Duration::ZERO,
            attempts: 1,
            backoff: Backoff::default(),
            only_if: Box::new(|| true),
            switch: None,
        }
    }

    /// Runs it on `schedule`. All machines must be given the same.
    pub fn on(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule.of(&self.name);
        self
    }

    /// Says what becomes of ticks that nobody could run in time: by default they may begin a minute
    /// late.
    ///
    /// # Errors
    ///
    /// Where they may begin less than a second late: that is less than timers and networks are.
    pub fn missed(mut self, missed: Missed) -> Result<Self, InvalidInput> {
        if let Missed::SkipAfter(length) = missed
            && length < Duration::from_secs(1)
        {
            return Err(InvalidInput::new(format!(
                "a tick of {} may begin {length:?} late: it must be a second at least",
                self.name
            )));
        }
        self.missed = missed;
        Ok(self)
    }

    /// The ttl of its lease: how long nobody else can begin after the machine it ran on has died. A
    /// body may take longer, since heartbeats are sent while it runs; [`timeout`](Self::timeout) limits
    /// it. By default the locker's. The locker's other options stay as they are.
    ///
    /// # Errors
    ///
    /// If it is not [`LeaseOptions::MIN_TTL`] to [`LeaseOptions::MAX_TTL`].
    pub fn at_most(mut self, ttl: Duration) -> Result<Self, InvalidInput> {
        let _in_range = LeaseOptions::new(ttl)?;
        self.ttl = Some(ttl);
        Ok(self)
    }

    /// Drops a body that is not done within `timeout`: the run has [timed
    /// out](crate::Outcome::TimedOut), which counts as a failure, and its lease is released. By
    /// default there is no time-out.
    ///
    /// A body that hangs keeps its lease, and so keeps the job from running on every machine. The
    /// scheduler warns when a run takes longer than the time to its next tick.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, InvalidInput> {
        if timeout.is_zero() {
            return Err(InvalidInput::new(format!("the time-out of {} is zero", self.name)));
        }
        self.timeout = Some(timeout);
        Ok(self)
    }

    /// Keeps its lease from everybody until it is this old, however short the body was: so that a
    /// machine whose clock is behind does not run right after another. By default not at all.
    ///
    /// Ticks do not need it, since none is run twice. It is counted from the grant, and left out
    /// where the lease was lost or the scheduler was dropped.
    ///
    /// # Errors
    ///
    /// Where it is more than [`LeaseOptions::MAX_RESERVATION`], seven days.
    pub fn at_least(mut self, length: Duration) -> Result<Self, InvalidInput> {
        let longest = LeaseOptions::MAX_RESERVATION;
        if length > longest {
            return Err(InvalidInput::new(format!(
                "{} is to be kept for at least {length:?}: seven days are the most",
                self.name
            )));
        }
        self.at_least = length;
        Ok(self)
    }

    /// Begins a tick up to `attempts` times until its body has finished. By default once: a body that
    /// has failed half-way may have done anything.
    ///
    /// Attempts count from the first start. [`Missed::SkipAfter`] limits how late the first attempt may
    /// begin; the others follow however long the first took, until the next tick is due. After a
    /// failure or a time-out the next attempt waits for the [backoff](Self::backoff); after the machine
    /// died, for the lease to expire.
    ///
    /// Only for a body that may be done again. Zero counts as one.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Waits for `first` before the second attempt at a tick, and for twice as long before each
    /// further one, up to `longest`. By default 1 s, up to a minute: most failures are short, and a
    /// long one should not be met with sixty attempts a minute.
    ///
    /// The lease is reserved meanwhile, so that the pause is kept by every machine, whatever its
    /// clock says. A pause ends when the next tick is due.
    ///
    /// # Errors
    ///
    /// If `first` is longer than `longest`, or `longest` than [`LeaseOptions::MAX_RESERVATION`].
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Result<Self, InvalidInput> {
        if first > longest || longest > LeaseOptions::MAX_RESERVATION {
            return Err(InvalidInput::new(format!(
                "backoff {first:?} to {longest:?} of {} is out of range: the first pause is not \
                 longer than the longest, and that is up to seven days",
                self.name
            )));
        }
        self.backoff = Backoff { first, longest };
        Ok(self)
    }

    /// Runs it only where `condition` holds, asked on this machine before each run: in production,
    /// say. One that panics ends the scheduler.
    pub fn only_if(mut self, condition: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.only_if = Box::new(condition);
        self
    }

    /// Runs it only while `switch` is on, asked before each run.
    pub fn with_switch(mut self, switch: impl Switch) -> Self {
        self.switch = Some(Arc::new(switch));
        self
    }

    /// Its name.
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
    /// The pause after the attempt of this number, from 1.
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

/// In characters.
pub(crate) const LONGEST_NOTE: usize = 200;
