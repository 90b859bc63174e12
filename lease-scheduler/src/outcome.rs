//! What came of a run, and who is told.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use lease_core::{FencingToken, Holder, LeaseKey, LossCause, Lost, StoreError};
use tracing::{debug, info, warn};

use crate::history::PastRun;
use crate::job::JobError;
use crate::schedule::MissedTicks;

/// A run of a job on this machine, from the moment it was due to its end; or why there was none.
///
/// Two outcomes concern the whole fleet, and one machine tells of them: [`Outcome::Missed`] and
/// [`Outcome::Died`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// Which job.
    pub job: LeaseKey,
    /// When it was to run: its tick, or when it was asked for.
    pub scheduled: Timestamp,
    /// Its body's beginning and length; `None` where it did not begin.
    pub body: Option<BodyRun>,
    /// What came of it.
    pub outcome: Outcome,
}

/// How a job's body ran.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BodyRun {
    /// Under which token of its key.
    pub token: FencingToken,
    /// Which attempt at its tick it was, from 1.
    pub attempt: u32,
    /// When it began, by this machine's clock.
    pub began: Timestamp,
    /// How long after it was scheduled that was: zero where the clock was set back meanwhile.
    pub latency: Duration,
    /// How long it ran.
    pub run_time: Duration,
    /// What it has [noted](crate::JobContext::note); empty where that is nothing.
    pub note: String,
}

/// What came of a run.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "match on each: these are all the ways to end")]
pub enum Outcome {
    /// The body came to its end.
    Finished,
    /// The body answered with an error, panicked, or was not done when its grace was over.
    Failed(JobError),
    /// The body was dropped at the job's [time-out](crate::Job::timeout), which is this long.
    TimedOut(Duration),
    /// The lease was lost: the body was dropped before anybody else could begin.
    Lost(Lost),
    /// Nobody began these ticks in time. The machine that writes them into the history tells of them,
    /// once for the fleet.
    Missed(MissedTicks),
    /// The lease of this run ended before its end was written: its process died, or lost the lease or
    /// the store. The machine that obtains the lease next writes it into the history, and tells of it.
    Died(PastRun),
    /// There was no run on this machine.
    Skipped(Skip),
    /// There is to be no run.
    Disabled(DisabledBy),
}

/// Why there was no run on this machine.
#[derive(Debug)]
#[non_exhaustive]
pub enum Skip {
    /// Somebody else has the lease, or had it so shortly ago that it is kept from all.
    Held(Holder),
    /// This tick was run before, or a later one was: which.
    AlreadyRan(Timestamp),
    /// It is not known whether it may run: the table, or the switch, could not say.
    Unknown(StoreError),
    /// The lease was lost before the body began.
    LostBefore(LossCause),
    /// This scheduler has been told to stop.
    Stopping,
}

/// What says that there is to be no run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DisabledBy {
    /// The job's own condition, [`Job::only_if`](crate::Job::only_if).
    OnlyIf,
    /// The [`Switch`](crate::Switch).
    Switch,
}

/// Is told what came of each run, to count it.
///
/// Called from the jobs' tasks: keep it short, and do not block. It is told once of each body that
/// ran; and for each tick that was not run on this machine, once of each reason. Of missed ticks and
/// of runs that died, one machine of the fleet is told, once.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use lease_scheduler::{JobMetrics, Outcome, Run};
///
/// #[derive(Debug, Default)]
/// struct Failures(AtomicU64);
///
/// impl JobMetrics for Failures {
///     fn ended(&self, run: &Run) {
///         if matches!(run.outcome, Outcome::Failed(_)) {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait JobMetrics: fmt::Debug + Send + Sync + 'static {
    /// A run has ended, or there was none.
    fn ended(&self, run: &Run);
}

/// Counts nothing.
#[derive(Debug)]
pub(crate) struct Uncounted;

impl JobMetrics for Uncounted {
    fn ended(&self, _run: &Run) {}
}

impl Outcome {
    /// A name for it: `finished`, `failed`, `timed out`, `lost`, `missed`, `died`, `skipped` or
    /// `disabled`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed(_) => "failed",
            Self::TimedOut(_) => "timed out",
            Self::Lost(_) => "lost",
            Self::Missed(_) => "missed",
            Self::Died(_) => "died",
            Self::Skipped(_) => "skipped",
            Self::Disabled(_) => "disabled",
        }
    }

    /// What went wrong, where something did.
    fn error(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(&**error),
            Self::Lost(lost) => Some(lost),
            Self::Skipped(Skip::Unknown(error)) => Some(error),
            Self::Finished
            | Self::TimedOut(_)
            | Self::Missed(_)
            | Self::Died(_)
            | Self::Skipped(_)
            | Self::Disabled(_) => None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Finished => Ok(()),
            Self::Failed(error) => write!(f, ": {error}"),
            Self::TimedOut(limit) => write!(f, ": not done within {limit:?}"),
            Self::Lost(lost) => write!(f, ": {lost}"),
            Self::Missed(ticks) => write!(f, ": {ticks}"),
            Self::Died(run) => write!(f, ": {} under token {}", run.by, run.token),
            Self::Skipped(skip) => write!(f, ": {skip}"),
            Self::Disabled(DisabledBy::OnlyIf) => f.write_str(": not in this place"),
            Self::Disabled(DisabledBy::Switch) => f.write_str(": it is switched off"),
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(holder) => {
                write!(f, "{} has it, under token {}", holder.lessee, holder.token)
            }
            Self::AlreadyRan(tick) => write!(f, "{tick} was run"),
            Self::Unknown(error) => write!(f, "{error}"),
            Self::LostBefore(cause) => write!(f, "the lease was lost: {cause}"),
            Self::Stopping => f.write_str("the scheduler stops"),
        }
    }
}

impl Run {
    /// Tells whoever reads logs.
    pub(crate) fn log(&self) {
        let Self { job, scheduled, body, outcome } = self;
        let (name, error) = (outcome.name(), outcome.error());
        match (body, outcome) {
            (Some(body), Outcome::Finished) => info!(
                %job, %scheduled, token = %body.token, attempt = body.attempt,
                latency = ?body.latency, run_time = ?body.run_time, outcome = name,
                note = body.note, "job has run"
            ),
            (Some(body), _) => warn!(
                %job, %scheduled, token = %body.token, attempt = body.attempt,
                latency = ?body.latency, run_time = ?body.run_time, outcome = name,
                note = body.note, error, why = %outcome, "job failed"
            ),
            (None, Outcome::Missed(ticks)) => warn!(
                %job, first = %ticks.first, last = %ticks.last, count = ticks.count,
                outcome = name, "job missed ticks"
            ),
            (None, Outcome::Died(run)) => warn!(
                %job, %scheduled, token = %run.token, attempt = run.attempt, by = run.by,
                began = %run.began, outcome = name, "job died: its lease ended before its run did"
            ),
            (None, Outcome::Skipped(Skip::Unknown(_) | Skip::LostBefore(_))) => warn!(
                %job, %scheduled, outcome = name, error, why = %outcome,
                "job not run: it is not known whether it may"
            ),
            (None, _) => {
                debug!(%job, %scheduled, outcome = name, why = %outcome, "job not run here");
            }
        }
    }
}
