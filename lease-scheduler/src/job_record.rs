//! The state of a job in the record of its lease, and all changes to that state.

use jiff::{SignedDuration, Timestamp};
use lease_core::store::Grant;
use lease_core::{Attributes, Change, FencingToken, StoreError, StoreErrorKind, Value};

use crate::control::trigger::{Request, TriggerNumber};
use crate::history::{self, Ending, PastRun, past_run};
use crate::job::JobContext;
use crate::outcome::Skip;
use crate::run::cause::Cause;
use crate::schedule::MissedTicks;
use crate::text::text;

/// The state of a job, as read from the record of its lease.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobRecord {
    /// When a machine first saw the job, by the clock of this machine.
    since: Option<Timestamp>,
    /// Ticks up to this time do not count, because the schedule was changed or the mark was reset.
    from: Option<Timestamp>,
    /// The mark: the last tick that was started.
    tick: Option<Timestamp>,
    /// How often the marked tick was started.
    attempt: u32,
    /// Whether a body of the marked tick has finished.
    is_done: bool,
    /// The last trigger that was started.
    trigger: Option<Request>,
    /// How often this trigger was started.
    trigger_attempt: u32,
    /// Whether a body of this trigger has finished, or its last allowed attempt has started.
    is_trigger_done: bool,
    /// The last missed tick in the history.
    missed: Option<Timestamp>,
    /// The stored text of the schedule.
    schedule: Option<String>,
    /// The run whose end is not written.
    running: Option<Value>,
    history: Vec<Value>,
}

/// A run that is about to start.
pub(crate) struct RunStart<'a> {
    pub(crate) context: &'a JobContext,
    /// The tick or the trigger that the run will mark.
    pub(crate) cause: &'a Cause,
    /// Earlier ticks that no machine started.
    pub(crate) missed: Option<&'a MissedTicks>,
    pub(crate) schedule: &'a str,
    /// The maximum number of attempts at a tick or a trigger.
    pub(crate) attempts: u32,
    /// The number of runs that the history keeps.
    pub(crate) kept: usize,
    pub(crate) now: Timestamp,
}

impl JobRecord {
    /// Reads the attributes of a record.
    ///
    /// # Errors
    ///
    /// Fails if an attribute that decides whether a tick may run cannot be read. Then no tick runs. An
    /// unreadable history is ignored.
    pub(crate) fn read(attributes: &Attributes) -> Result<Self, StoreError> {
        let trigger = match attributes.get(TRIGGER) {
            Some(value) => Some(Request::read(value).ok_or_else(|| unreadable(TRIGGER, value))?),
            None => None,
        };
        Ok(Self {
            since: time(attributes, SINCE)?,
            from: time(attributes, FROM)?,
            tick: time(attributes, TICK)?,
            attempt: count(attributes, ATTEMPT)?,
            is_done: attributes.contains_key(DONE),
            trigger,
            trigger_attempt: count(attributes, TRIGGER_ATTEMPT)?,
            is_trigger_done: attributes.contains_key(TRIGGER_DONE),
            missed: time(attributes, MISSED)?,
            schedule: attributes.get(SCHEDULE).and_then(Value::as_text).map(str::to_owned),
            running: attributes.get(RUNNING).cloned(),
            history: match attributes.get(HISTORY) {
                Some(Value::List(runs)) => runs.clone(),
                _ => Vec::new(),
            },
        })
    }

    /// Returns the time up to which no tick may be started, with at most `attempts` starts per tick;
    /// `None` if every tick may be started.
    pub(crate) fn settled(&self, attempts: u32) -> Option<Timestamp> {
        self.started(attempts).max(self.from)
    }

    /// Returns the time up to which no tick may start: the mark, or just before it if that tick may restart.
    fn started(&self, attempts: u32) -> Option<Timestamp> {
        self.tick.and_then(|tick| match self.unfinished(attempts) {
            Some(tick) => tick.checked_sub(JUST_BEFORE).ok(),
            None => Some(tick),
        })
    }

    /// Returns why `tick` may not be started, with at most `attempts` starts per tick; `None` if it may.
    pub(crate) fn skip(&self, tick: Timestamp, attempts: u32) -> Option<Skip> {
        let reaches = |to: &Timestamp| tick <= *to;
        let started = self.started(attempts).filter(reaches).map(Skip::AlreadyRan);
        started.or_else(|| self.from.filter(reaches).map(Skip::NotCounted))
    }

    /// Returns the tick that was started last, if its body has not finished and may be started again.
    pub(crate) fn unfinished(&self, attempts: u32) -> Option<Timestamp> {
        let is_open = !self.is_done && self.attempt < attempts;
        self.tick.filter(|tick| is_open && Some(*tick) > self.from)
    }

    /// Returns the time up to which each tick was started, or is in the history as missed.
    pub(crate) fn accounted(&self) -> Option<Timestamp> {
        self.tick.max(self.missed).max(self.from)
    }

    /// Returns the time after which a machine that started at `machine_start` may start ticks, with at most
    /// `attempts` starts per tick.
    pub(crate) fn counts_from(&self, machine_start: Timestamp, attempts: u32) -> Timestamp {
        self.settled(attempts).unwrap_or_else(|| self.first_seen(machine_start))
    }

    /// Returns when the job was first seen, or `machine_start` if that is earlier.
    ///
    /// The clock of the machine that first saw the job may have been ahead. In this case, no machine has run
    /// the ticks between `machine_start` and the stored time.
    pub(crate) fn first_seen(&self, machine_start: Timestamp) -> Timestamp {
        self.since.map_or(machine_start, |since| since.min(machine_start))
    }

    /// Whether the record was written for another schedule.
    pub(crate) fn has_other_schedule(&self, schedule: &str) -> bool {
        self.schedule.as_deref().is_some_and(|stored| stored != schedule)
    }

    /// Returns the stored text of the schedule.
    pub(crate) fn schedule(&self) -> Option<&str> {
        self.schedule.as_deref()
    }

    /// Whether the trigger with this number, or a later one, was started.
    pub(crate) fn has_started(&self, number: TriggerNumber) -> bool {
        self.trigger.as_ref().is_some_and(|trigger| trigger.number >= number)
    }

    /// Returns the trigger that was started last, if its body has not finished and may be started again.
    pub(crate) fn unfinished_trigger(&self, attempts: u32) -> Option<&Request> {
        let is_open = !self.is_trigger_done && self.trigger_attempt < attempts;
        self.trigger.as_ref().filter(|_| is_open)
    }

    /// Returns when the last attempt at the last trigger ended, by the clock of its machine; `None` if the history
    /// does not have its end.
    pub(crate) fn trigger_ended(&self) -> Option<Timestamp> {
        let number = self.trigger.as_ref()?.number;
        self.past_runs().into_iter().find(|run| run.trigger == Some(number))?.ended
    }

    /// Returns how often the last trigger was started.
    pub(crate) fn trigger_attempt(&self) -> u32 {
        self.trigger_attempt
    }

    /// Returns the number of the next attempt at the tick or trigger.
    pub(crate) fn next_attempt(&self, cause: &Cause) -> u32 {
        match cause {
            Cause::Tick(tick) if self.tick == Some(*tick) => self.attempt.saturating_add(1),
            Cause::Trigger(trigger) if self.has_started(trigger.number) => {
                self.trigger_attempt.saturating_add(1)
            }
            Cause::Tick(_) | Cause::Trigger(_) | Cause::Call => 1,
        }
    }

    /// Returns the run whose end is not written.
    pub(crate) fn running(&self) -> Option<PastRun> {
        self.running.as_ref().and_then(past_run)
    }

    /// Whether the run under `token` started last and its end is not written.
    pub(crate) fn is_running(&self, token: FencingToken) -> bool {
        self.running().is_some_and(|run| run.token == token)
    }

    /// Returns the change that marks the start of a run. For a tick, it also stops every other machine
    /// from starting that tick.
    ///
    /// The change expects the mark that was read. In a correct table, the grant alone would be enough.
    /// With this expectation, no tick starts twice, even if the table has granted the job's key twice.
    pub(crate) fn start(&mut self, start: &RunStart<'_>) -> Change {
        let RunStart { context, cause, missed, schedule, attempts, kept, now } = start;
        let mut change = expecting(Change::new(), TICK, self.tick.map(text));
        change = expecting(change, ATTEMPT, (self.attempt > 0).then(|| self.attempt.into()));
        match cause {
            Cause::Tick(tick) => {
                change = change.set(TICK, text(*tick)).set(ATTEMPT, context.attempt).remove(DONE);
            }
            Cause::Trigger(trigger) => {
                change = expecting(change, TRIGGER, self.trigger.as_ref().map(Request::to_value));
                let attempt = (self.trigger_attempt > 0).then(|| self.trigger_attempt.into());
                change = expecting(change, TRIGGER_ATTEMPT, attempt);
                change = change.set(TRIGGER, trigger.to_value());
                change = change.set(TRIGGER_ATTEMPT, context.attempt);
                // The last attempt stays the last one, even if its machine dies, and the next version of the
                // program allows more attempts.
                change = if context.attempt >= *attempts {
                    change.set(TRIGGER_DONE, true)
                } else {
                    change.remove(TRIGGER_DONE)
                };
            }
            Cause::Call => (),
        }
        if self.since.is_none() {
            change = change.set(SINCE, text(*now));
        }
        if self.schedule.as_deref() != Some(*schedule) {
            change = change.set(SCHEDULE, *schedule);
        }
        let is_dead = self.end_dead_run(*kept);
        if let Some(ticks) = missed {
            self.push_history(history::missed(&context.grant, ticks, *now), *kept);
        }
        if is_dead || missed.is_some() {
            change = change.set(HISTORY, Value::List(self.history.clone()));
        }
        let JobContext { grant, scheduled, attempt, .. } = context;
        let running = history::begun(grant, *scheduled, *attempt, cause.trigger(), *now);
        self.running = Some(running.clone());
        change.set(RUNNING, running)
    }

    /// Returns the change that writes the end of the run that started last.
    pub(crate) fn end(
        &mut self,
        cause: &Cause,
        ending: Ending,
        note: &str,
        kept: usize,
        now: Timestamp,
    ) -> Change {
        let mut change = Change::new().remove(RUNNING);
        change = match cause {
            Cause::Tick(_) if ending == Ending::Finished => change.set(DONE, true),
            Cause::Trigger(_) if ending == Ending::Finished => change.set(TRIGGER_DONE, true),
            Cause::Tick(_) | Cause::Trigger(_) | Cause::Call => change,
        };
        if let Some(run) = self.running.take() {
            self.push_history(history::ended(run, ending, note, Some(now)), kept);
        }
        change.set(HISTORY, Value::List(self.history.clone()))
    }

    /// Returns the change that adds a dead run and the `missed` ticks to the history. `passed` are all
    /// ticks that were not started, also the ticks at which the job was disabled.
    pub(crate) fn reconcile(
        &mut self,
        grant: &Grant,
        missed: Option<&MissedTicks>,
        passed: Option<&MissedTicks>,
        kept: usize,
        now: Timestamp,
    ) -> Change {
        let _is_dead = self.end_dead_run(kept);
        let mut change = Change::new().remove(RUNNING);
        if let Some(ticks) = missed {
            self.push_history(history::missed(grant, ticks, now), kept);
        }
        if let Some(ticks) = passed {
            change = change.set(MISSED, text(ticks.last));
        }
        change.set(HISTORY, Value::List(self.history.clone()))
    }

    /// If the end of a run is not written, moves the run to the history as `Died`. Returns whether it did.
    fn end_dead_run(&mut self, kept: usize) -> bool {
        let Some(run) = self.running.take() else { return false };
        self.push_history(history::ended(run, Ending::Died, "", None), kept);
        true
    }

    /// Adds a run to the history, which keeps the last `kept` runs.
    fn push_history(&mut self, run: Value, kept: usize) {
        self.history.push(run);
        let surplus = self.history.len().saturating_sub(kept);
        self.history.drain(..surplus);
    }

    /// Returns all runs, the latest first.
    pub(crate) fn past_runs(&self) -> Vec<PastRun> {
        self.history.iter().chain(&self.running).rev().filter_map(past_run).collect()
    }
}

/// Returns the first record of a job, which a machine first sees at `now`.
pub(crate) fn first_seen(now: Timestamp, schedule: &str) -> Attributes {
    Attributes::from([(SINCE.to_owned(), text(now)), (SCHEDULE.to_owned(), schedule.into())])
}

/// Returns the change that resets the mark: ticks up to `now` do not count. All later ticks
/// count, even those up to an old mark that is later than `now`.
pub(crate) fn reset(now: Timestamp) -> Change {
    let change = Change::new().remove(TICK).remove(ATTEMPT).remove(DONE).remove(MISSED);
    change.set(FROM, text(now))
}

/// Whether `attributes` are those of a job's record.
pub(crate) fn is_job(attributes: &Attributes) -> bool {
    [SINCE, SCHEDULE, RUNNING, HISTORY, TICK].iter().any(|name| attributes.contains_key(*name))
}

/// Returns the change that stores a new schedule: ticks up to `from` do not count.
pub(crate) fn change_schedule(from: Timestamp, schedule: &str) -> Change {
    Change::new().set(FROM, text(from)).set(SCHEDULE, schedule)
}

fn expecting(change: Change, name: &str, value: Option<Value>) -> Change {
    match value {
        Some(value) => change.expecting(name, value),
        None => change.expecting_none(name),
    }
}

fn count(attributes: &Attributes, name: &str) -> Result<u32, StoreError> {
    let Some(value) = attributes.get(name) else { return Ok(0) };
    let count = value.as_i64().and_then(|count| u32::try_from(count).ok());
    count.ok_or_else(|| unreadable(name, value))
}

fn time(attributes: &Attributes, name: &str) -> Result<Option<Timestamp>, StoreError> {
    let Some(value) = attributes.get(name) else { return Ok(None) };
    let read = value.as_text().and_then(|text| text.parse().ok());
    read.map(Some).ok_or_else(|| unreadable(name, value))
}

fn unreadable(name: &str, value: &Value) -> StoreError {
    let text = format!("attribute {name:?} of a job cannot be read: {value:?}");
    StoreError::new(StoreErrorKind::Corrupt, text)
}

const SINCE: &str = "job_since";
const FROM: &str = "job_from";
const TICK: &str = "job_tick";
const ATTEMPT: &str = "job_attempt";
const DONE: &str = "job_done";
const TRIGGER: &str = "job_trigger";
const TRIGGER_ATTEMPT: &str = "job_trigger_attempt";
const TRIGGER_DONE: &str = "job_trigger_done";
const MISSED: &str = "job_missed";
const SCHEDULE: &str = "job_schedule";
const RUNNING: &str = "job_running";
const HISTORY: &str = "job_history";

const JUST_BEFORE: SignedDuration = SignedDuration::from_nanos(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lease_core::Lessee;
    use lease_core::store::{Claim, Nonce};
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
            arguments: Arc::default(),
            trigger: None,
            cancelled: CancellationToken::new(),
            note: Arc::default(),
        }
    }

    /// If a table has granted the job's key twice, it receives two such changes.
    #[test]
    fn second_mark_from_the_same_read_is_rejected() {
        let tick = at("2026-11-21T03:00:00Z");
        for found in [Attributes::new(), first_seen(tick, "hourly")] {
            let mut attributes = found.clone();
            let changes = [1, 2].map(|token| {
                let context = context(token, tick);
                let start = RunStart {
                    context: &context,
                    cause: &Cause::Tick(tick),
                    missed: None,
                    schedule: "hourly",
                    attempts: 1,
                    kept: 10,
                    now: tick,
                };
                JobRecord::read(&found).unwrap().start(&start)
            });

            assert!(changes[0].fits(&attributes));
            changes[0].apply(&mut attributes);
            assert!(!changes[1].fits(&attributes));
        }
    }

    #[test]
    fn written_record_is_read_back() {
        let (tick, end) = (at("2026-11-21T03:00:00Z"), at("2026-11-21T03:00:07.5Z"));
        let (mut attributes, mut record) = (Attributes::new(), JobRecord::default());
        let (context, cause) = (context(7, tick), Cause::Tick(tick));
        let start = RunStart {
            context: &context,
            cause: &cause,
            missed: None,
            schedule: "hourly",
            attempts: 1,
            kept: 10,
            now: tick,
        };

        record.start(&start).apply(&mut attributes);
        let started = JobRecord::read(&attributes).unwrap();
        assert!(started.is_running(context.token()));
        assert_eq!(started.settled(1), Some(tick));
        assert!(started.settled(2) < Some(tick), "it may be started again");
        assert_eq!(started.next_attempt(&cause), 2);

        record.end(&cause, Ending::Finished, "17 reports", 10, end).apply(&mut attributes);
        let ended = JobRecord::read(&attributes).unwrap();
        assert_eq!(ended.settled(2), Some(tick));
        let run = &ended.past_runs()[0];
        assert_eq!(
            (run.ended, run.ending, run.note.as_str()),
            (Some(end), Ending::Finished, "17 reports")
        );
    }
}
