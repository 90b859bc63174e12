//! Past runs of a job: their encoding in the record of its lease.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lease_core::store::Grant;
use lease_core::{FencingToken, Value};

use crate::control::trigger::{Request, TriggerNumber};
use crate::schedule::MissedTicks;
use crate::text::text;

/// A past run of a job on any machine. The scheduler reads it from the record of the job's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PastRun {
    /// The run's tick, or the time at which the run was requested. For missed ticks, the last missed tick.
    pub scheduled: Timestamp,
    /// The number of this attempt at the tick or the trigger, from 1; 0 for missed ticks.
    pub attempt: u32,
    /// The trigger that started the run; `None` for ticks and for [`run_now`](crate::SchedulerHandle::run_now).
    pub trigger: Option<TriggerNumber>,
    /// When the run started, by the clock of its machine. For missed ticks, when a machine noticed them.
    pub began: Timestamp,
    /// When the run ended, by the same clock; `None` while it runs, and if its machine died.
    pub ended: Option<Timestamp>,
    /// How the run ended.
    pub ending: Ending,
    /// The lessee that ran the job or noticed the missed ticks.
    pub by: String,
    /// The token of that lessee's lease.
    pub token: FencingToken,
    /// The body's note and its error; empty if there is neither.
    pub note: String,
}

/// How a run ended, according to the job's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The run has not ended: the store reports its lease as held.
    Running,
    /// The body returned `Ok`.
    Finished,
    /// The body failed.
    Failed,
    /// The body was dropped at the job's [timeout](crate::Job::timeout).
    TimedOut,
    /// The run's end was not written: the process died, lost the lease, or could not reach the store.
    Died,
    /// The ticks were missed: no machine started them in time.
    Missed,
}

impl Ending {
    fn name(self) -> &'static str {
        match self {
            Self::Running => "",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Died => "died",
            Self::Missed => "missed",
        }
    }
}

/// Returns the entry of a run that starts.
pub(crate) fn begun(
    grant: &Grant,
    scheduled: Timestamp,
    attempt: u32,
    trigger: Option<&Request>,
    now: Timestamp,
) -> Value {
    let mut run = BTreeMap::from([
        ("scheduled".to_owned(), text(scheduled)),
        ("attempt".to_owned(), attempt.into()),
        ("began".to_owned(), text(now)),
        ("by".to_owned(), grant.lessee.as_str().into()),
        ("token".to_owned(), grant.token.get().into()),
    ]);
    if let Some(trigger) = trigger {
        run.insert("trigger".to_owned(), trigger.number.get().into());
    }
    Value::Map(run)
}

/// Adds the end of the run to its entry. `now` is `None` if the time of the end is unknown.
pub(crate) fn ended(run: Value, ending: Ending, note: &str, now: Option<Timestamp>) -> Value {
    let Value::Map(mut run) = run else { return run };
    run.insert("ending".to_owned(), ending.name().into());
    if let Some(now) = now {
        run.insert("ended".to_owned(), text(now));
    }
    if !note.is_empty() {
        run.insert("note".to_owned(), note.into());
    }
    Value::Map(run)
}

/// Returns the entry of ticks that no machine started. The holder of `grant` has noticed them.
pub(crate) fn missed(grant: &Grant, ticks: &MissedTicks, now: Timestamp) -> Value {
    ended(begun(grant, ticks.last, 0, None, now), Ending::Missed, &ticks.to_string(), Some(now))
}

/// Reads an entry; `None` if it is not readable.
pub(crate) fn past_run(value: &Value) -> Option<PastRun> {
    let Value::Map(run) = value else { return None };
    let field = |name: &str| run.get(name).and_then(Value::as_text);
    let time = |name: &str| field(name)?.parse().ok();
    let token = run.get("token").and_then(Value::as_i64)?;
    Some(PastRun {
        scheduled: time("scheduled")?,
        attempt: run.get("attempt").and_then(Value::as_i64)?.try_into().ok()?,
        trigger: run.get("trigger").and_then(TriggerNumber::read),
        began: time("began")?,
        ended: time("ended"),
        ending: match field("ending") {
            Some("finished") => Ending::Finished,
            Some("failed") => Ending::Failed,
            Some("timed out") => Ending::TimedOut,
            Some("missed") => Ending::Missed,
            Some(_) => Ending::Died,
            None => Ending::Running,
        },
        by: field("by")?.to_owned(),
        token: FencingToken::new(token.try_into().ok()?).ok()?,
        note: field("note").unwrap_or_default().to_owned(),
    })
}
