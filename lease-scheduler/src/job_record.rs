//! The state of a job, as the record of its lease has it.

use jiff::{SignedDuration, Timestamp};
use lease_core::{Attributes, Change, FencingToken, Grant, StoreError, StoreErrorKind, Value};

use crate::history::{self, Ending, PastRun, past_run, text};
use crate::job::JobContext;
use crate::schedule::MissedTicks;

/// The state of a job, as the record of its lease has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    /// When the job was first seen, by the clock of the machine that saw it.
    since: Option<Timestamp>,
    /// Ticks up to this one do not count: a change of the schedule, or an operator, says so.
    from: Option<Timestamp>,
    /// The last tick that was begun.
    tick: Option<Timestamp>,
    /// How often that tick was begun.
    attempt: u32,
    /// Whether that tick's body has finished.
    is_done: bool,
    /// The last tick that the history tells of as missed.
    missed: Option<Timestamp>,
    /// The schedule, in words.
    schedule: Option<String>,
    running: Option<Value>,
    history: Vec<Value>,
}

/// A body that is about to begin.
pub(crate) struct Beginning<'a> {
    pub(crate) context: &'a JobContext,
    /// `None` if somebody asked for the run: it uses up no tick.
    pub(crate) tick: Option<Timestamp>,
    /// Ticks before this one that nobody began.
    pub(crate) missed: Option<&'a MissedTicks>,
    pub(crate) schedule: &'a str,
    pub(crate) now: Timestamp,
}

impl Standing {
    /// Reads the attributes of a record.
    ///
    /// What decides whether a tick is run must be readable, or none is. The history may be lost.
    pub(crate) fn read(attributes: &Attributes) -> Result<Self, StoreError> {
        let attempt = attributes.get(ATTEMPT).map_or(Ok(0), |value| {
            let count = value.as_i64().and_then(|count| u32::try_from(count).ok());
            count.ok_or_else(|| unreadable(ATTEMPT, value))
        })?;
        Ok(Self {
            since: time(attributes, SINCE)?,
            from: time(attributes, FROM)?,
            tick: time(attributes, TICK)?,
            attempt,
            is_done: attributes.contains_key(DONE),
            missed: time(attributes, MISSED)?,
            schedule: attributes.get(SCHEDULE).and_then(Value::as_text).map(str::to_owned),
            running: attributes.get(RUNNING).cloned(),
            history: match attributes.get(HISTORY) {
                Some(Value::List(runs)) => runs.clone(),
                _ => Vec::new(),
            },
        })
    }

    /// The last moment whose ticks are settled, if each may be begun `attempts` times; `None` if none
    /// was begun yet.
    pub(crate) fn settled(&self, attempts: u32) -> Option<Timestamp> {
        let begun = self.tick.and_then(|tick| match self.unfinished(attempts) {
            Some(tick) => tick.checked_sub(JUST_BEFORE).ok(),
            None => Some(tick),
        });
        begun.max(self.from)
    }

    /// The tick that was begun last, if its body has not finished and may be begun again.
    pub(crate) fn unfinished(&self, attempts: u32) -> Option<Timestamp> {
        let is_open = !self.is_done && self.attempt < attempts;
        self.tick.filter(|tick| is_open && Some(*tick) > self.from)
    }

    /// The last moment whose ticks were begun or are in the history as missed.
    pub(crate) fn accounted(&self) -> Option<Timestamp> {
        self.tick.max(self.missed).max(self.from)
    }

    /// From which moment on ticks count for a machine that is there since `here`, if each may be begun
    /// `attempts` times.
    ///
    /// The time at which the job was first seen can make that earlier, and never later: a clock may
    /// have been ahead then, and nobody has run what was due meanwhile.
    pub(crate) fn begins(&self, here: Timestamp, attempts: u32) -> Timestamp {
        self.settled(attempts).unwrap_or_else(|| self.first_seen(here))
    }

    /// When the job was first seen, if a machine has seen it since `here`.
    pub(crate) fn first_seen(&self, here: Timestamp) -> Timestamp {
        self.since.map_or(here, |since| since.min(here))
    }

    /// Whether the record is that of another schedule.
    pub(crate) fn is_of_another(&self, schedule: &str) -> bool {
        self.schedule.as_deref().is_some_and(|of| of != schedule)
    }

    /// Which attempt at `tick` the next one is.
    pub(crate) fn next_attempt(&self, tick: Option<Timestamp>) -> u32 {
        if tick.is_some() && tick == self.tick { self.attempt.saturating_add(1) } else { 1 }
    }

    /// The run whose end is not written.
    pub(crate) fn running(&self) -> Option<PastRun> {
        self.running.as_ref().and_then(past_run)
    }

    /// Whether the run under `token` is the one that has begun last.
    pub(crate) fn is_running(&self, token: FencingToken) -> bool {
        self.running().is_some_and(|run| run.token == token)
    }

    /// Marks that a body begins; for a tick: that nobody else is to begin it.
    ///
    /// Expects what was read. The grant alone would do in a table that keeps its promises; so a tick is
    /// not begun twice even in one that has granted its key twice.
    pub(crate) fn begin(&mut self, beginning: &Beginning<'_>) -> Change {
        let Beginning { context, tick, missed, schedule, now } = beginning;
        let mut change = expecting(Change::new(), TICK, self.tick.map(text));
        change = expecting(change, ATTEMPT, (self.attempt > 0).then(|| self.attempt.into()));
        if let Some(tick) = tick {
            change = change.set(TICK, text(*tick)).set(ATTEMPT, context.attempt).remove(DONE);
        }
        if self.since.is_none() {
            change = change.set(SINCE, text(*now));
        }
        if self.schedule.as_deref() != Some(*schedule) {
            change = change.set(SCHEDULE, *schedule);
        }
        let is_dead = self.bury();
        if let Some(ticks) = missed {
            self.remember(history::missed(&context.grant, ticks, *now));
        }
        if is_dead || missed.is_some() {
            change = change.set(HISTORY, Value::List(self.history.clone()));
        }
        let running = history::begun(&context.grant, context.scheduled, context.attempt, *now);
        self.running = Some(running.clone());
        change.set(RUNNING, running)
    }

    /// Writes the end of the body that began last.
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
        if let Some(run) = self.running.take() {
            self.remember(history::ended(run, ending, note, Some(now)));
        }
        change.set(HISTORY, Value::List(self.history.clone()))
    }

    /// Writes, under `grant`, what no run will: that the last run died, which ticks were missed, and up
    /// to which tick that is known.
    pub(crate) fn account(
        &mut self,
        grant: &Grant,
        missed: Option<&MissedTicks>,
        passed: Option<&MissedTicks>,
        now: Timestamp,
    ) -> Change {
        let _is_dead = self.bury();
        let mut change = Change::new().remove(RUNNING);
        if let Some(ticks) = missed {
            self.remember(history::missed(grant, ticks, now));
        }
        if let Some(ticks) = passed {
            change = change.set(MISSED, text(ticks.last));
        }
        change.set(HISTORY, Value::List(self.history.clone()))
    }

    /// Puts the run whose end is not written into the history, once its lease has ended.
    fn bury(&mut self) -> bool {
        let Some(run) = self.running.take() else { return false };
        self.remember(history::ended(run, Ending::Died, "", None));
        true
    }

    fn remember(&mut self, run: Value) {
        self.history.push(run);
        let surplus = self.history.len().saturating_sub(LONGEST_HISTORY);
        self.history.drain(..surplus);
    }

    /// All runs in the history, the last one first.
    pub(crate) fn past_runs(&self) -> Vec<PastRun> {
        self.history.iter().chain(&self.running).rev().filter_map(past_run).collect()
    }
}

/// The record of a job that nobody has run yet, first seen at `now`.
pub(crate) fn first_seen(now: Timestamp, schedule: &str) -> Attributes {
    Attributes::from([(SINCE.to_owned(), text(now)), (SCHEDULE.to_owned(), schedule.into())])
}

/// Ticks up to `now` do not count, begun or not; later ones do, also those that are marked as run.
pub(crate) fn restart(now: Timestamp, schedule: &str) -> Change {
    let change = Change::new().remove(TICK).remove(ATTEMPT).remove(DONE).remove(MISSED);
    change.set(FROM, text(now)).set(SCHEDULE, schedule)
}

/// Ticks up to `now` do not count under a schedule that has changed.
pub(crate) fn changed(now: Timestamp, schedule: &str) -> Change {
    Change::new().set(FROM, text(now)).set(SCHEDULE, schedule)
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

const SINCE: &str = "job_since";
const FROM: &str = "job_from";
const TICK: &str = "job_tick";
const ATTEMPT: &str = "job_attempt";
const DONE: &str = "job_done";
const MISSED: &str = "job_missed";
const SCHEDULE: &str = "job_schedule";
const RUNNING: &str = "job_running";
const HISTORY: &str = "job_history";

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
        for found in [Attributes::new(), first_seen(tick, "hourly")] {
            let mut attributes = found.clone();
            let changes = [1, 2].map(|token| {
                let context = context(token, tick);
                let beginning = Beginning {
                    context: &context,
                    tick: Some(tick),
                    missed: None,
                    schedule: "hourly",
                    now: tick,
                };
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
        let beginning = Beginning {
            context: &context,
            tick: Some(tick),
            missed: None,
            schedule: "hourly",
            now: tick,
        };

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
