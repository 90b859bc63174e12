//! What is written of a job's runs on the record of its lease.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lease_core::{Attributes, Change, FencingToken, StoreError, StoreErrorKind, Value};

use crate::job::JobContext;

/// A run as the table remembers it, whichever machine it was on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PastRun {
    /// When it was to run.
    pub scheduled: Timestamp,
    /// Which attempt at its tick it was, from 1.
    pub attempt: u32,
    /// When it began, by the clock of who ran it.
    pub began: Timestamp,
    /// When it ended, by the clock of who ran it; `None` while it runs, and where its end was never
    /// written.
    pub ended: Option<Timestamp>,
    /// What came of it.
    pub ending: Ending,
    /// Who ran it.
    pub by: String,
    /// Under which token.
    pub token: FencingToken,
    /// What it noted, and what went wrong; empty where that is nothing.
    pub note: String,
}

/// What the table knows of how a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Nothing yet: it runs, or its end will never be written.
    None,
    /// The body came to its end.
    Finished,
    /// The body failed.
    Failed,
    /// Somebody else has begun since: the lease was lost, or the process has died.
    BrokenOff,
}

/// Where a job stands, as its record says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    /// When the job was first seen, by the clock of who saw it.
    since: Option<Timestamp>,
    /// The last tick that was begun.
    tick: Option<Timestamp>,
    /// How often that tick was begun.
    attempt: u32,
    /// Whether that tick's body has finished.
    is_done: bool,
    running: Option<Value>,
    history: Vec<Value>,
}

/// A body that is about to begin.
pub(crate) struct Beginning<'a> {
    pub(crate) context: &'a JobContext,
    /// `None` where it was asked for by hand: no tick is used up then.
    pub(crate) tick: Option<Timestamp>,
    pub(crate) now: Timestamp,
}

impl Standing {
    /// Reads what is on a record.
    ///
    /// What decides whether a tick is run must be readable, or none is; what is only there to be
    /// looked at may be lost.
    pub(crate) fn read(attributes: &Attributes) -> Result<Self, StoreError> {
        let attempt = attributes.get(ATTEMPT).map_or(Ok(0), |value| {
            let count = value.as_i64().and_then(|count| u32::try_from(count).ok());
            count.ok_or_else(|| unreadable(ATTEMPT, value))
        })?;
        Ok(Self {
            since: time(attributes, SINCE)?,
            tick: time(attributes, TICK)?,
            attempt,
            is_done: attributes.contains_key(DONE),
            running: attributes.get(RUNNING).cloned(),
            history: match attributes.get(HISTORY) {
                Some(Value::List(runs)) => runs.clone(),
                _ => Vec::new(),
            },
        })
    }

    /// The last moment whose ticks are of no interest any more, if each may be begun `attempts`
    /// times; `None` where none was begun yet.
    pub(crate) fn settled(&self, attempts: u32) -> Option<Timestamp> {
        let tick = self.tick?;
        if self.is_done || self.attempt >= attempts {
            return Some(tick);
        }
        tick.checked_sub(JUST_BEFORE).ok()
    }

    /// From which moment on ticks are of interest to a machine that is there since `here`, if each may
    /// be begun `attempts` times.
    ///
    /// When the job was first seen, can make that earlier, and never later: a clock may have been
    /// ahead then, and nobody has run what was due meanwhile.
    pub(crate) fn begins(&self, here: Timestamp, attempts: u32) -> Timestamp {
        self.settled(attempts).unwrap_or_else(|| self.since.map_or(here, |since| since.min(here)))
    }

    /// Which attempt at `tick` the next one is.
    pub(crate) fn next_attempt(&self, tick: Option<Timestamp>) -> u32 {
        if tick.is_some() && tick == self.tick { self.attempt.saturating_add(1) } else { 1 }
    }

    /// Whether the run under `token` is the one that has begun last.
    pub(crate) fn is_running(&self, token: FencingToken) -> bool {
        self.running.as_ref().and_then(past_run).is_some_and(|run| run.token == token)
    }

    /// Marks that a body begins; for a tick: that nobody else is to begin it.
    ///
    /// Expects what was found. The grant alone would do in a table that keeps its promises; so a
    /// tick is not begun twice even in one that has granted its key twice.
    pub(crate) fn begin(&mut self, beginning: &Beginning<'_>) -> Change {
        let Beginning { context, tick, now } = beginning;
        let mut change = expecting(Change::new(), TICK, self.tick.map(text));
        change = expecting(change, ATTEMPT, (self.attempt > 0).then(|| self.attempt.into()));
        if let Some(tick) = tick {
            change = change.set(TICK, text(*tick)).set(ATTEMPT, context.attempt).remove(DONE);
        }
        if self.since.is_none() {
            change = change.set(SINCE, text(*now));
        }
        if let Some(Value::Map(mut broken_off)) = self.running.take() {
            broken_off.insert(ENDING.to_owned(), Ending::BrokenOff.name().into());
            self.remember(Value::Map(broken_off));
            change = change.set(HISTORY, Value::List(self.history.clone()));
        }
        let running = Value::Map(BTreeMap::from([
            ("scheduled".to_owned(), text(context.scheduled)),
            ("attempt".to_owned(), context.attempt.into()),
            ("began".to_owned(), text(*now)),
            ("by".to_owned(), context.grant.lessee.as_str().into()),
            ("token".to_owned(), context.token().get().into()),
        ]));
        self.running = Some(running.clone());
        change.set(RUNNING, running)
    }

    /// Marks how the body that began last has ended.
    pub(crate) fn end(
        &mut self,
        tick: Option<Timestamp>,
        ending: Ending,
        note: &str,
        now: Timestamp,
    ) -> Change {
        let mut change = Change::new().remove(RUNNING);
        if tick.is_some() && ending == Ending::Finished {
            change = change.set(DONE, true);
        }
        if let Some(Value::Map(mut run)) = self.running.take() {
            run.insert("ended".to_owned(), text(now));
            run.insert(ENDING.to_owned(), ending.name().into());
            if !note.is_empty() {
                run.insert("note".to_owned(), note.into());
            }
            self.remember(Value::Map(run));
        }
        change.set(HISTORY, Value::List(self.history.clone()))
    }

    fn remember(&mut self, run: Value) {
        self.history.push(run);
        let surplus = self.history.len().saturating_sub(LONGEST_HISTORY);
        self.history.drain(..surplus);
    }

    /// All runs that are remembered, the last one first.
    pub(crate) fn past_runs(&self) -> Vec<PastRun> {
        self.history.iter().chain(&self.running).rev().filter_map(past_run).collect()
    }
}

impl Ending {
    fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::BrokenOff => "broken off",
        }
    }
}

/// What is on the record of a job that nobody has run yet, first seen at `now`.
pub(crate) fn first_seen(now: Timestamp) -> Attributes {
    Attributes::from([(SINCE.to_owned(), text(now))])
}

fn past_run(value: &Value) -> Option<PastRun> {
    let Value::Map(run) = value else { return None };
    let words = |name: &str| run.get(name).and_then(Value::as_text);
    let moment = |name: &str| words(name)?.parse().ok();
    let token = run.get("token").and_then(Value::as_i64)?;
    Some(PastRun {
        scheduled: moment("scheduled")?,
        attempt: run.get("attempt").and_then(Value::as_i64)?.try_into().ok()?,
        began: moment("began")?,
        ended: moment("ended"),
        ending: match words(ENDING) {
            Some("finished") => Ending::Finished,
            Some("failed") => Ending::Failed,
            Some("broken off") => Ending::BrokenOff,
            _ => Ending::None,
        },
        by: words("by")?.to_owned(),
        token: FencingToken::new(token.try_into().ok()?).ok()?,
        note: words("note").unwrap_or_default().to_owned(),
    })
}

fn expecting(change: Change, name: &str, value: Option<Value>) -> Change {
    match value {
        Some(value) => change.expecting(name, value),
        None => change.expecting_none(name),
    }
}

fn time(attributes: &Attributes, name: &str) -> Result<Option<Timestamp>, StoreError> {
    let Some(value) = attributes.get(name) else { return Ok(None) };
    let read = value.as_text().and_then(|text| text.parse().ok());
    read.map(Some).ok_or_else(|| unreadable(name, value))
}

fn unreadable(name: &str, value: &Value) -> StoreError {
    let sentence = format!("attribute {name:?} of a job cannot be read: {value:?}");
    StoreError::new(StoreErrorKind::Corrupt, sentence)
}

/// As people write it, since people look at records: to the nanosecond, and back without a loss.
fn text(time: Timestamp) -> Value {
    Value::from(time.to_string())
}

const SINCE: &str = "job_since";
const TICK: &str = "job_tick";
const ATTEMPT: &str = "job_attempt";
const DONE: &str = "job_done";
const RUNNING: &str = "job_running";
const HISTORY: &str = "job_history";

const ENDING: &str = "ending";

/// About 2 kB, which is written at each end: two of DynamoDB's units.
const LONGEST_HISTORY: usize = 10;

const JUST_BEFORE: SignedDuration = SignedDuration::from_nanos(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lease_core::{Claim, Lessee, Nonce};
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn context(token: u64, scheduled: Timestamp) -> JobContext {
        let (key, lessee) = ("job".parse().unwrap(), Lessee::new("a").unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), Duration::from_secs(30));
        JobContext {
            grant: claim.granted(FencingToken::new(token).unwrap()),
            scheduled,
            attempt: 1,
            cancelled: CancellationToken::new(),
            note: Arc::default(),
        }
    }

    /// What a table would have to let through that has granted its key twice.
    #[test]
    fn of_two_marks_that_were_made_from_one_look_the_second_does_not_fit() {
        let tick = at("2026-11-21T03:00:00Z");
        for found in [Attributes::new(), first_seen(tick)] {
            let mut attributes = found.clone();
            let changes = [1, 2].map(|token| {
                let context = context(token, tick);
                let beginning = Beginning { context: &context, tick: Some(tick), now: tick };
                Standing::read(&found).unwrap().begin(&beginning)
            });

            assert!(changes[0].fits(&attributes));
            changes[0].apply(&mut attributes);
            assert!(!changes[1].fits(&attributes));
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (tick, end) = (at("2026-11-21T03:00:00Z"), at("2026-11-21T03:00:07.5Z"));
        let (mut attributes, mut standing) = (Attributes::new(), Standing::default());
        let context = context(7, tick);
        let beginning = Beginning { context: &context, tick: Some(tick), now: tick };

        standing.begin(&beginning).apply(&mut attributes);
        let begun = Standing::read(&attributes).unwrap();
        assert!(begun.is_running(context.token()));
        assert_eq!(begun.settled(1), Some(tick));
        assert!(begun.settled(2) < Some(tick), "it may be begun again");
        assert_eq!(begun.next_attempt(Some(tick)), 2);

        standing.end(Some(tick), Ending::Finished, "17 reports", end).apply(&mut attributes);
        let ended = Standing::read(&attributes).unwrap();
        assert_eq!(ended.settled(2), Some(tick));
        let run = &ended.past_runs()[0];
        assert_eq!(
            (run.ended, run.ending, run.note.as_str()),
            (Some(end), Ending::Finished, "17 reports")
        );
    }
}
