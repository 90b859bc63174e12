//! The outcome of a run, its log line and its metrics.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use lease_core::{FencingToken, Holder, LeaseKey, LossCause, Lost, StoreError};
use tracing::{debug, info, warn};

use crate::control::trigger::TriggerNumber;
use crate::history::PastRun;
use crate::job::JobError;
use crate::schedule::MissedTicks;

/// Reports a run of a job on this machine, or why the job did not run.
///
/// Two outcomes concern the whole fleet, and one machine reports them: [`Outcome::Missed`] and
/// [`Outcome::Died`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// The name of the job.
    pub job: LeaseKey,
    /// The run's tick; for a run on demand, the time of the call; for a trigger, the time at which it was sent.
    pub scheduled: Timestamp,
    /// The trigger that requested the run, if a trigger did.
    pub trigger: Option<TriggerNumber>,
    /// When the body started and how long it ran; `None` if it did not start.
    pub body: Option<BodyRun>,
    /// How the run ended, or why the job did not run.
    pub outcome: Outcome,
}

/// Reports how a job's body ran.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BodyRun {
    /// The fencing token of the job's lease in this run.
    pub token: FencingToken,
    /// The number of this attempt at the run's tick, from 1.
    pub attempt: u32,
    /// When the body started, by this machine's clock.
    pub began: Timestamp,
    /// The time from the run's tick to the body's start; zero if the clock was set back meanwhile.
    pub latency: Duration,
    /// How long the body ran.
    pub run_time: Duration,
    /// The body's [note](crate::JobContext::note); empty if it left none.
    pub note: String,
}

/// How a run ended, or why the job did not run.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a run ends in no other way")]
pub enum Outcome {
    /// The body returned `Ok`.
    Finished,
    /// The body returned an error, panicked, or still ran when the grace of a stopping scheduler was
    /// over.
    Failed(JobError),
    /// The body was dropped at the job's [timeout](crate::Job::timeout). The value is the timeout.
    TimedOut(Duration),
    /// The lease was lost. The body was dropped before another machine could start the job.
    Lost(Lost),
    /// No machine started these ticks in time. The machine that writes them to the history reports
    /// them, once for the fleet.
    Missed(MissedTicks),
    /// The lease of this run ended before the run's end was written. The process died, lost the lease, or
    /// could not reach the store. The next holder of the lease writes and reports the death.
    Died(PastRun),
    /// The job did not run on this machine.
    Skipped(Skip),
    /// The job is disabled.
    Disabled(DisabledBy),
}

/// Why the job did not run on this machine.
#[derive(Debug)]
#[non_exhaustive]
pub enum Skip {
    /// Another lessee holds the key, or the key is still reserved after its last run.
    Held(Holder),
    /// This tick, or a later one, was started before. The value is the last started tick.
    AlreadyRan(Timestamp),
    /// Ticks up to this time do not count: the schedule was changed, or an operator reset the mark.
    NotCounted(Timestamp),
    /// The table or the switch could not be read, so the job may not run.
    Unknown(StoreError),
    /// The lease was lost before the body started.
    LostBefore(LossCause),
    /// This scheduler is stopping.
    Stopping,
}

/// Why a job is disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DisabledBy {
    /// The job's own condition, [`Job::only_if`](crate::Job::only_if).
    OnlyIf,
    /// The [`Switch`](crate::Switch).
    Switch,
    /// An operator has [paused](crate::JobControl::pause) the job.
    Pause,
}

/// Receives the outcome of each run, so that a program can count outcomes.
///
/// The scheduler calls `ended` from the jobs' tasks, so it must return soon. The scheduler calls it once for
/// each body that ran, and once for each reason why a tick did not run on this machine. For
/// missed ticks and for a run that died, one machine of the fleet calls it, once. The crates `lease-metrics` and
/// `lease-opentelemetry` implement this trait.
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
    /// Receives the report of a run that has ended, or of a run that did not start.
    fn ended(&self, run: &Run);

    /// A tick of `job` that lies `ahead` of this machine's clock is marked as run, so this machine runs no tick
    /// until then: a clock is wrong. `ahead` is zero if no such tick is marked. The scheduler calls this at least
    /// once a minute for each job whose body does not run, and with zero when it stops. By default, does nothing.
    fn clock_ahead(&self, job: &LeaseKey, ahead: Duration) {
        let _ = (job, ahead);
    }
}

/// Ignores outcomes.
#[derive(Debug)]
pub(crate) struct NoMetrics;

impl JobMetrics for NoMetrics {
    fn ended(&self, _run: &Run) {}
}

impl Outcome {
    /// The names of all outcomes, to register metrics before the first run.
    pub const NAMES: &'static [&'static str] =
        &["finished", "failed", "timed out", "lost", "missed", "died", "skipped", "disabled"];

    /// Returns the outcome's name, one of [`NAMES`](Self::NAMES).
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

    /// Returns the error of a run that failed, or of a run that an error prevented.
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
            Self::TimedOut(limit) => write!(f, ": still running after {limit:?}"),
            Self::Lost(lost) => write!(f, ": {lost}"),
            Self::Missed(ticks) => write!(f, ": {ticks}"),
            Self::Died(run) => write!(f, ": {} under token {}", run.by, run.token),
            Self::Skipped(skip) => write!(f, ": {skip}"),
            Self::Disabled(DisabledBy::OnlyIf) => {
                f.write_str(": its condition does not hold on this machine")
            }
            Self::Disabled(DisabledBy::Pause) => f.write_str(": an operator has paused it"),
            Self::Disabled(DisabledBy::Switch) => f.write_str(": it is switched off"),
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(holder) => {
                write!(f, "{} holds the lease", holder.lessee)?;
                holder.token.map_or(Ok(()), |token| write!(f, ", under token {token}"))
            }
            Self::AlreadyRan(tick) => write!(f, "{tick} was started before"),
            Self::NotCounted(from) => {
                write!(
                    f,
                    "ticks up to {from} do not count: the schedule was changed, or the mark reset"
                )
            }
            Self::Unknown(error) => write!(f, "{error}"),
            Self::LostBefore(cause) => write!(f, "the lease was lost: {cause}"),
            Self::Stopping => f.write_str("the scheduler is stopping"),
        }
    }
}

impl Run {
    /// Logs the run.
    pub(crate) fn log(&self) {
        let Self { job, scheduled, trigger, body, outcome } = self;
        let trigger = trigger.map(TriggerNumber::get);
        let (name, error) = (outcome.name(), outcome.error());
        match (body, outcome) {
            (Some(body), Outcome::Finished) => info!(
                %job, %scheduled, trigger, token = %body.token, attempt = body.attempt,
                latency = ?body.latency, run_time = ?body.run_time, outcome = name,
                note = body.note, "job finished"
            ),
            (Some(body), _) => warn!(
                %job, %scheduled, trigger, token = %body.token, attempt = body.attempt,
                latency = ?body.latency, run_time = ?body.run_time, outcome = name,
                note = body.note, error, why = %outcome, "job failed"
            ),
            (None, Outcome::Missed(ticks)) => warn!(
                %job, first = %ticks.first, last = %ticks.last, count = ticks.count,
                outcome = name, "job missed ticks"
            ),
            (None, Outcome::Died(run)) => warn!(
                %job, %scheduled, token = %run.token, attempt = run.attempt, by = run.by,
                began = %run.began, outcome = name, "job died: its lease ended during its run"
            ),
            (None, Outcome::Skipped(Skip::Unknown(_) | Skip::LostBefore(_))) => warn!(
                %job, %scheduled, outcome = name, error, why = %outcome,
                "job not run: its lease, record or switch could not be read"
            ),
            (None, _) => {
                debug!(%job, %scheduled, outcome = name, why = %outcome, "job not run here");
            }
        }
    }
}
