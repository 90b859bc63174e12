//! Past runs of a job, as the record of its lease has them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lease_core::{FencingToken, Grant, Value};

use crate::schedule::MissedTicks;

/// A run that the record of a job's lease tells of, on whichever machine it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PastRun {
    /// When it was to run. The last of several ticks that were missed.
    pub scheduled: Timestamp,
    /// Which attempt at its tick it was, from 1; 0 for ticks that were missed.
    pub attempt: u32,
    /// When it began, by the clock of the machine that ran it. For missed ticks: when a machine noticed.
    pub began: Timestamp,
    /// When it ended, by the same clock. `None` while it runs, and if its machine died.
    pub ended: Option<Timestamp>,
    /// How it ended.
    pub ending: Ending,
    /// The lessee that ran it, or that noticed the missed ticks.
    pub by: String,
    /// The token of that lessee's lease.
    pub token: FencingToken,
    /// The body's note and its error; empty if there is neither.
    pub note: String,
}

/// How a run ended, as far as the record tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// It has not ended: the store says that its lease is held.
    Running,
    /// The body returned `Ok`.
    Finished,
    /// The body failed.
    Failed,
    /// The body was dropped at the job's [time-out](crate::Job::timeout).
    TimedOut,
    /// Its lease ended before its end was written: its process died, or lost the lease or the store.
    Died,
    /// No run: nobody began these ticks in time.
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

/// A run as it is written when it begins.
pub(crate) fn begun(grant: &Grant, scheduled: Timestamp, attempt: u32, now: Timestamp) -> Value {
    Value::Map(BTreeMap::from([
        ("scheduled".to_owned(), text(scheduled)),
        ("attempt".to_owned(), attempt.into()),
        ("began".to_owned(), text(now)),
        ("by".to_owned(), grant.lessee.as_str().into()),
        ("token".to_owned(), grant.token.get().into()),
    ]))
}

/// The same run with its end; `None` for `now` if nobody knows when that was.
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

/// Ticks that nobody began, as the machine of `grant` has noticed.
pub(crate) fn missed(grant: &Grant, ticks: &MissedTicks, now: Timestamp) -> Value {
    ended(begun(grant, ticks.last, 0, now), Ending::Missed, &ticks.to_string(), Some(now))
}

/// A run as it was written; `None` if it cannot be read.
pub(crate) fn past_run(value: &Value) -> Option<PastRun> {
    let Value::Map(run) = value else { return None };
    let words = |name: &str| run.get(name).and_then(Value::as_text);
    let moment = |name: &str| words(name)?.parse().ok();
    let token = run.get("token").and_then(Value::as_i64)?;
    Some(PastRun {
        scheduled: moment("scheduled")?,
        attempt: run.get("attempt").and_then(Value::as_i64)?.try_into().ok()?,
        began: moment("began")?,
        ended: moment("ended"),
        ending: match words("ending") {
            Some("finished") => Ending::Finished,
            Some("failed") => Ending::Failed,
            Some("timed out") => Ending::TimedOut,
            Some("missed") => Ending::Missed,
            Some(_) => Ending::Died,
            None => Ending::Running,
        },
        by: words("by")?.to_owned(),
        token: FencingToken::new(token.try_into().ok()?).ok()?,
        note: words("note").unwrap_or_default().to_owned(),
    })
}

/// A time as people write it, since people look at records: to the nanosecond, and without a loss.
pub(crate) fn text(time: Timestamp) -> Value {
    Value::from(time.to_string())
}
