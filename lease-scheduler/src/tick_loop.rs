//! Waits for the ticks of one job on one machine, and runs each tick.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::store::{BootClock, Clock, Moment, within};
use tokio::select;
use tokio::time::sleep;
use tracing::warn;

use crate::job_record::{JobRecord, first_seen};
use crate::outcome::{DisabledBy, Outcome, Run, Skip};
use crate::run::Runner;
use crate::schedule::Misfire;

/// Runs a job's ticks until its scheduler stops.
///
/// A tick stays due until its mark is in the table, or until it is too late to start. It also stays due
/// while its key is held. The holder may still run the previous tick, because its clock is behind. Or the
/// holder may die before it has marked the tick.
pub(crate) struct TickLoop {
    runner: Arc<Runner>,
    /// When this loop started.
    started: Timestamp,
    /// The time up to which ticks need no run, as far as this machine knows.
    settled: Timestamp,
    /// The time up to which ticks were started or are in the history as missed, as far as this machine
    /// knows.
    accounted: Timestamp,
    /// A tick whose body has failed and may be started again.
    unfinished: Option<Timestamp>,
    /// The last tick whose body has finished on this machine.
    finished: Option<Timestamp>,
    /// Whether the record had a run without an end: its machine may have died.
    is_watching: bool,
    /// Whether the table has a record of the job.
    is_registered: bool,
    /// A tick whose key was held. It may still run on this machine.
    pending: Option<Run>,
    /// The tick and the outcome that were reported last.
    reported: Option<(Timestamp, Kind)>,
    /// When this loop last warned that the mark is ahead of its clock.
    warned_at: Option<Timestamp>,
    clock: BootClock,
    /// The last reading of the clocks.
    last_reading: Option<ClockReading>,
    /// The last reading before the wall clock stepped forward.
    before_step: Option<ClockReading>,
}

/// The time by the wall clock, and by the boot clock at the same moment.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    wall: Timestamp,
    moment: Moment,
}

impl TickLoop {
    pub(crate) fn new(runner: Arc<Runner>) -> Self {
        let started = runner.wall.now();
        Self {
            runner,
            started,
            settled: started,
            accounted: started,
            unfinished: None,
            finished: None,
            is_watching: false,
            is_registered: false,
            pending: None,
            reported: None,
            warned_at: None,
            clock: BootClock::new(),
            last_reading: None,
            before_step: None,
        }
    }

    pub(crate) async fn run(mut self) {
        let stopping = self.runner.stopping.clone();
        while !stopping.is_cancelled() {
            let pause = self.tick().await;
            select! {
                biased;
                () = stopping.cancelled() => (),
                () = sleep(pause) => (),
            }
        }
        self.report_pending(None);
        self.runner.metrics.clock_ahead(&self.runner.job.name, Duration::ZERO);
    }

    /// Runs the tick that is due, if any. Returns the pause until the next call.
    async fn tick(&mut self) -> Duration {
        if !self.is_registered {
            self.register().await;
        }
        if self.is_ahead() {
            self.check_mark().await;
        }
        self.runner.metrics.clock_ahead(&self.runner.job.name, self.mark_ahead());
        self.read_clocks();
        let due = self.due();
        self.report_pending(due);
        match due {
            Some(tick) => self.handle_tick(tick).await,
            None => self.reconcile().await,
        }
    }

    fn due(&self) -> Option<Timestamp> {
        let now = self.runner.wall.now();
        self.runner.due(self.settled, self.unfinished, now, self.misfire(now))
    }

    /// Reads both clocks, and detects whether the wall clock has stepped forward since the last reading.
    fn read_clocks(&mut self) {
        let wall = &self.runner.wall;
        let reading = ClockReading { wall: wall.now(), moment: self.clock.now() };
        let Some(last) = self.last_reading.replace(reading) else { return };
        let shown = Duration::try_from(reading.wall.duration_since(last.wall)).unwrap_or_default();
        let elapsed = reading.moment.since(last.moment);
        if wall.timer_for(shown) > elapsed + SHORTEST_STEP && !self.has_stepped() {
            self.before_step = Some(last);
        }
    }

    /// Whether the wall clock stepped forward so recently that a tick within the step may still start.
    fn has_stepped(&self) -> bool {
        match (self.before_step, self.runner.job.misfire) {
            (Some(before), Misfire::StartWithin(length)) => {
                // Twice the length: at the step, the last reading before it may have been this old.
                let since = self.clock.now().since(before.moment);
                since <= self.runner.wall.timer_for(length.saturating_mul(2))
            }
            _ => false,
        }
    }

    /// Returns how late a tick may start, by a clock that shows `now`.
    ///
    /// If the clock steps over a tick, the tick is late at once. It still runs if the step is shorter than
    /// a minute.
    fn misfire(&self, now: Timestamp) -> Misfire {
        match (self.runner.job.misfire, self.before_step) {
            (Misfire::StartWithin(length), Some(before)) if self.has_stepped() => {
                let since = Duration::try_from(now.duration_since(before.wall)).unwrap_or_default();
                Misfire::StartWithin(length.max(since.min(LONGEST_PAUSE)))
            }
            (misfire, _) => misfire,
        }
    }

    /// Returns the time until the next tick, at most a minute, and at most the time by which a tick may
    /// start late. The time is limited, since the clock may be set meanwhile.
    fn until_next(&self) -> Duration {
        let (job, wall) = (&self.runner.job, &self.runner.wall);
        let now = wall.now();
        let next = job.schedule.next(self.settled.max(now));
        let left = next.map_or(SignedDuration::MAX, |next| next.duration_since(now));
        let left = Duration::try_from(left).unwrap_or_default();
        let longest = match job.misfire {
            Misfire::StartWithin(length) => length.min(LONGEST_PAUSE),
            Misfire::CatchUpOnce => LONGEST_PAUSE,
        };
        wall.timer_for(left.min(longest)).min(longest)
    }

    /// Creates the job's record if the table has none, so that ticks from now on can count as missed. Then
    /// reads the record.
    async fn register(&mut self) {
        let limit = self.runner.locker.options().request_timeout();
        let (name, schedule) = (&self.runner.job.name, self.runner.job.schedule.stored_text());
        let attributes = first_seen(self.started, &schedule);
        let created = self.runner.table.create(name, &attributes);
        if within(limit, created).await.is_err() {
            return; // the next call tries again
        }
        if let Ok(record) = self.runner.read_record().await {
            self.is_registered = true;
            if record.has_other_schedule(&schedule) {
                // This clock may be ahead of the others: ticks of the last poll interval still count.
                let tolerance = self.runner.tolerance();
                self.started = self.started.saturating_sub(tolerance).unwrap_or(self.started);
                (self.settled, self.accounted) = (self.started, self.started);
                self.runner.change_schedule(self.started).await;
                self.is_watching = record.running().is_some();
                return;
            }
            self.reset_from(&record);
            self.warn_if_no_tick_left(&record);
        }
    }

    /// Replaces the state of this loop by the state in the record.
    fn reset_from(&mut self, record: &JobRecord) {
        let first_seen = record.first_seen(self.started);
        self.settled = record.counts_from(self.started, self.runner.job.attempts);
        self.accounted = record.accounted().unwrap_or(first_seen);
        self.finished = None;
        self.update_from(record);
    }

    /// Takes over newer state from the record. If the store fails over to an older state, no tick becomes
    /// due again on this machine.
    fn update_from(&mut self, record: &JobRecord) {
        let attempts = self.runner.job.attempts;
        self.settled = self.settled.max(record.counts_from(self.settled, attempts));
        self.accounted = self.accounted.max(record.accounted().unwrap_or(self.accounted));
        self.unfinished = record.unfinished(attempts).filter(|tick| Some(*tick) > self.finished);
        self.is_watching = record.running().is_some();
    }

    /// Whether ticks are settled up to a time that is ahead of this clock by more than the tolerance.
    fn is_ahead(&self) -> bool {
        !self.mark_ahead().is_zero()
    }

    /// Returns how far ticks are settled ahead of this clock. Zero within the tolerance.
    fn mark_ahead(&self) -> Duration {
        let ahead = self.settled.duration_since(self.runner.wall.now());
        let ahead = if ahead > self.runner.tolerance() { ahead } else { SignedDuration::ZERO };
        Duration::try_from(ahead).unwrap_or_default()
    }

    /// Reads the mark again, since an operator may have reset it. Warns if the mark is still ahead: this loop
    /// runs no tick before the mark, and no other log line shows this.
    async fn check_mark(&mut self) {
        let Ok(record) = self.runner.read_record().await else { return };
        self.reset_from(&record);
        let now = self.runner.wall.now();
        let is_warned = self.warned_at.is_some_and(|warned_at| {
            (warned_at..warned_at.saturating_add(BETWEEN_WARNINGS).unwrap_or(now)).contains(&now)
        });
        if self.is_ahead() && !is_warned {
            self.warned_at = Some(now);
            let (job, mark) = (&self.runner.job.name, &self.settled);
            let ahead = mark.duration_since(now);
            warn!(%job, %mark, %ahead, "a tick ahead of this clock is marked as run: no tick runs \
                until then; set the clocks right, and call SchedulerHandle::reset_mark");
        }
    }

    /// Warns of a job that never ran and has no further tick: its year may be mistyped.
    ///
    /// This is no error, since a program may also restart after the last tick of a job.
    fn warn_if_no_tick_left(&self, record: &JobRecord) {
        let (job, now) = (&self.runner.job, self.runner.wall.now());
        let is_run = record.settled(job.attempts).is_some();
        let is_due = job.schedule.due(self.settled, now, job.misfire).is_some();
        if !is_run && !is_due && job.schedule.next(now).is_none() {
            let (job, schedule) = (&job.name, &job.schedule);
            warn!(%job, ?schedule, "schedule has no further tick, and none was ever run: the \
                job runs only on demand");
        }
    }

    async fn handle_tick(&mut self, tick: Timestamp) -> Duration {
        let runner = Arc::clone(&self.runner);
        // First reads the record. A read is cheap, and usually another machine has already started the tick.
        let run = match runner.read_record().await {
            Ok(record) => {
                self.update_from(&record);
                match record.skip(tick, runner.job.attempts) {
                    Some(skip) => runner.skipped(tick, skip),
                    None => runner.run_tick(tick, self.started).await,
                }
            }
            Err(error) => runner.skipped(tick, Skip::Unknown(error)),
        };
        let mut pause = runner.locker.options().poll_interval();
        match &run.outcome {
            Outcome::Finished => {
                self.finished = Some(tick);
                self.settle(tick);
            }
            Outcome::Failed(_) | Outcome::TimedOut(_) | Outcome::Lost(_) => {
                let attempt = run.body.as_ref().map_or(0, |body| body.attempt);
                if attempt >= runner.job.attempts {
                    self.settle(tick);
                } else {
                    (self.unfinished, self.accounted) = (Some(tick), self.accounted.max(tick));
                    if runner.may_try_again(&run.outcome, attempt) {
                        pause = runner.wall.timer_for(runner.pause_after(attempt, tick));
                    }
                }
            }
            Outcome::Skipped(Skip::AlreadyRan(settled) | Skip::NotCounted(settled)) => {
                self.settle(*settled);
            }
            Outcome::Skipped(Skip::Held(_)) => {
                self.pending = Some(run);
                return if self.unfinished == Some(tick) { self.watch_pause() } else { pause };
            }
            Outcome::Skipped(_) | Outcome::Missed(_) | Outcome::Died(_) => (),
            Outcome::Disabled(DisabledBy::OnlyIf) => {
                self.report(&run);
                return self.until_next();
            }
            Outcome::Disabled(DisabledBy::Pause | DisabledBy::Switch) => {
                self.report(&run);
                return self.pass_disabled(tick).await;
            }
        }
        self.report(&run);
        if self.settled >= tick { Duration::ZERO } else { pause }
    }

    /// Writes that the ticks up to `tick` passed while the job was paused or switched off. So they do not count
    /// as missed, also if the job is resumed before the next call. Returns the pause until the next check.
    async fn pass_disabled(&mut self, tick: Timestamp) -> Duration {
        if self.accounted < tick && self.runner.pass_disabled(tick, self.started).await {
            self.accounted = tick;
        }
        // A resumed tick starts only while it is due.
        let longest = match self.runner.job.misfire {
            Misfire::StartWithin(length) => BETWEEN_CHECKS_OF_DISABLED.min(length / 4),
            Misfire::CatchUpOnce => BETWEEN_CHECKS_OF_DISABLED,
        };
        self.until_next().min(longest)
    }

    /// Notes that ticks up to `settled` need no run. `settled` is ahead of this clock if the clock of the
    /// machine that ran the tick is ahead.
    fn settle(&mut self, settled: Timestamp) {
        self.settled = self.settled.max(settled);
        self.accounted = self.accounted.max(settled);
        self.pending = None;
    }

    /// Writes dead runs and missed ticks to the history, unless another machine has done so. Called while no
    /// tick is due. Returns the pause until the next call.
    async fn reconcile(&mut self) -> Duration {
        if !self.is_watching && !self.has_missed() {
            return self.until_next();
        }
        if let Ok(record) = self.runner.read_record().await {
            self.update_from(&record);
            let now = self.runner.wall.now();
            if self.due().is_some() {
                return Duration::ZERO;
            }
            if !self.is_watching && !self.has_missed() {
                return self.until_next();
            }
            if self.runner.reconcile(self.started).await {
                self.is_watching = false;
                self.accounted = self.accounted.max(now);
                return self.until_next();
            }
        }
        self.until_next().min(self.watch_pause())
    }

    fn has_missed(&self) -> bool {
        let next = self.runner.job.schedule.next(self.accounted);
        next.is_some_and(|tick| tick <= self.runner.wall.now())
    }

    /// Returns the pause between two checks of a lease that may expire.
    fn watch_pause(&self) -> Duration {
        let options = self.runner.locker.options();
        options.heartbeat_period().max(options.poll_interval())
    }

    /// Reports the pending run, unless its tick is still due.
    fn report_pending(&mut self, due: Option<Timestamp>) {
        if let Some(run) = self.pending.take_if(|run| due != Some(run.scheduled)) {
            self.report(&run);
        }
    }

    /// Reports a run. A tick that did not run is reported only once for each reason.
    fn report(&mut self, run: &Run) {
        let kind = Some((run.scheduled, kind(&run.outcome)));
        if run.body.is_some() || self.reported != kind {
            self.runner.report(run);
        }
        self.reported = kind;
    }
}

type Kind = (Discriminant<Outcome>, Option<Discriminant<Skip>>);

fn kind(outcome: &Outcome) -> Kind {
    let skip = match outcome {
        Outcome::Skipped(skip) => Some(discriminant(skip)),
        _ => None,
    };
    (discriminant(outcome), skip)
}

const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest time between two checks whether a job is still paused or switched off, while its tick is due.
const BETWEEN_CHECKS_OF_DISABLED: Duration = Duration::from_secs(5);

/// A clock drifts by less than this between two readings. A larger difference is a step.
const SHORTEST_STEP: Duration = Duration::from_millis(100);

/// The time after which a scheduler repeats its warning of a mark ahead of its clock.
const BETWEEN_WARNINGS: SignedDuration = SignedDuration::from_hours(1);
