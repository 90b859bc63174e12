//! The ticks of one job on one machine: waits for them, and sees to each.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::{BootClock, Clock, Moment, within};
use tokio::select;
use tokio::time::sleep;
use tracing::warn;

use crate::outcome::{Outcome, Run, Skip};
use crate::run::Runner;
use crate::schedule::Missed;
use crate::standing::{Standing, first_seen};

/// Runs a job's ticks until its scheduler stops.
///
/// A tick stays due here until its mark is seen in the table, or its time is over. A held key is no
/// reason to forget it: the holder's clock may be behind, and it still runs the tick before; or the
/// holder dies before it has marked the tick.
pub(crate) struct Ticking {
    runner: Arc<Runner>,
    /// Since when this machine sees to ticks.
    here: Timestamp,
    /// The last moment whose ticks need no run, as far as is known here.
    settled: Timestamp,
    /// The last moment whose ticks were begun or are in the history as missed, as far as is known here.
    accounted: Timestamp,
    /// A tick whose body has failed and may be begun again.
    unfinished: Option<Timestamp>,
    /// The last tick whose body has finished here.
    finished: Option<Timestamp>,
    /// Whether a run was seen whose end was not: its machine may have died.
    is_watching: bool,
    is_known_to_the_table: bool,
    /// A run that did not come about, and may yet.
    pending: Option<Run>,
    /// The tick and the outcome that were told last.
    told: Option<(Timestamp, Kind)>,
    /// When a mark that is ahead was warned of.
    warned: Option<Timestamp>,
    clock: BootClock,
    /// The last look at the clocks.
    looked: Option<Look>,
    /// The last look before the wall clock stepped forward.
    before_step: Option<Look>,
}

/// What both clocks showed.
#[derive(Debug, Clone, Copy)]
struct Look {
    wall: Timestamp,
    moment: Moment,
}

impl Ticking {
    pub(crate) fn new(runner: Arc<Runner>) -> Self {
        let here = runner.wall.now();
        Self {
            runner,
            here,
            settled: here,
            accounted: here,
            unfinished: None,
            finished: None,
            is_watching: false,
            is_known_to_the_table: false,
            pending: None,
            told: None,
            warned: None,
            clock: BootClock::new(),
            looked: None,
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
        self.give_up(None);
    }

    /// Sees to the tick that is due, if one is. Returns the time until the next look.
    async fn tick(&mut self) -> Duration {
        if !self.is_known_to_the_table {
            self.introduce().await;
        }
        if self.is_ahead() {
            self.look_at_mark().await;
        }
        self.look_at_clocks();
        let due = self.due();
        self.give_up(due);
        match due {
            Some(tick) => self.see_to(tick).await,
            None => self.account().await,
        }
    }

    fn due(&self) -> Option<Timestamp> {
        let now = self.runner.wall.now();
        self.runner.due(self.settled, self.unfinished, now, self.missed(now))
    }

    /// Notes whether the wall clock has stepped forward since the last look.
    fn look_at_clocks(&mut self) {
        let wall = &self.runner.wall;
        let look = Look { wall: wall.now(), moment: self.clock.now() };
        let Some(last) = self.looked.replace(look) else { return };
        let shown = Duration::try_from(look.wall.duration_since(last.wall)).unwrap_or_default();
        let gone = look.moment.since(last.moment);
        if wall.timer_for(shown) > gone + SHORTEST_STEP && !self.has_stepped() {
            self.before_step = Some(last);
        }
    }

    /// Whether the wall clock stepped forward so short a time ago that a tick it stepped over may begin.
    fn has_stepped(&self) -> bool {
        match (self.before_step, self.runner.job.missed) {
            (Some(before), Missed::SkipAfter(length)) => {
                // A look may come as late as a tick may begin.
                let since = self.clock.now().since(before.moment);
                since <= self.runner.wall.timer_for(length.saturating_mul(2))
            }
            _ => false,
        }
    }

    /// How late a tick may begin by a clock that shows `now`.
    ///
    /// A step of the clock makes a tick late that was not due a moment before. If the step is less than
    /// a minute, the tick is run.
    fn missed(&self, now: Timestamp) -> Missed {
        match (self.runner.job.missed, self.before_step) {
            (Missed::SkipAfter(length), Some(before)) if self.has_stepped() => {
                let since = Duration::try_from(now.duration_since(before.wall)).unwrap_or_default();
                Missed::SkipAfter(length.max(since.min(LONGEST_PAUSE)))
            }
            (missed, _) => missed,
        }
    }

    /// The time until the next tick; at most a minute, and as long as a tick may begin late: the clock
    /// may be set meanwhile.
    fn until_next(&self) -> Duration {
        let (job, wall) = (&self.runner.job, &self.runner.wall);
        let now = wall.now();
        let next = job.schedule.next(self.settled.max(now));
        let left = next.map_or(SignedDuration::MAX, |next| next.duration_since(now));
        let left = Duration::try_from(left).unwrap_or_default();
        let longest = match job.missed {
            Missed::SkipAfter(length) => length.min(LONGEST_PAUSE),
            Missed::CatchUpOnce => LONGEST_PAUSE,
        };
        wall.timer_for(left.min(longest)).min(longest)
    }

    /// Writes a job that was never run into the table, so that its ticks can be missed from now on.
    async fn introduce(&mut self) {
        let limit = self.runner.locker.options().request_timeout();
        let (name, schedule) = (&self.runner.job.name, self.runner.job.schedule.words());
        let attributes = first_seen(self.here, &schedule);
        let created = self.runner.table.create(name, &attributes);
        if within(limit, created).await.is_err() {
            return; // and is tried again at the next look
        }
        if let Ok(standing) = self.runner.standing().await {
            self.is_known_to_the_table = true;
            if standing.is_of_another(&schedule) {
                self.runner.change_schedule(self.here).await;
                self.is_watching = standing.running().is_some();
                return;
            }
            self.learn_anew(&standing);
            self.warn_if_never(&standing);
        }
    }

    /// Takes over what the record says.
    fn learn_anew(&mut self, standing: &Standing) {
        let first_seen = standing.first_seen(self.here);
        self.settled = standing.begins(self.here, self.runner.job.attempts);
        self.accounted = standing.accounted().unwrap_or(first_seen);
        self.finished = None;
        self.learn(standing);
    }

    /// Takes over what the record says beyond what was known. A store that has fallen back behind it
    /// does not make a tick due again here.
    fn learn(&mut self, standing: &Standing) {
        let attempts = self.runner.job.attempts;
        self.settled = self.settled.max(standing.begins(self.settled, attempts));
        self.accounted = self.accounted.max(standing.accounted().unwrap_or(self.accounted));
        self.unfinished = standing.unfinished(attempts).filter(|tick| Some(*tick) > self.finished);
        self.is_watching = standing.running().is_some();
    }

    /// Whether the last settled tick is ahead of this clock.
    fn is_ahead(&self) -> bool {
        let ahead = self.settled.duration_since(self.runner.wall.now());
        ahead > self.runner.tolerance()
    }

    /// Reads the mark again, which may have been reset, and warns of one that is still ahead: no tick
    /// is due until then, and nothing else says so.
    async fn look_at_mark(&mut self) {
        let Ok(standing) = self.runner.standing().await else { return };
        self.learn_anew(&standing);
        let now = self.runner.wall.now();
        let is_warned = self.warned.is_some_and(|warned| {
            (warned..warned.saturating_add(BETWEEN_WARNINGS).unwrap_or(now)).contains(&now)
        });
        if self.is_ahead() && !is_warned {
            self.warned = Some(now);
            let (job, mark) = (&self.runner.job.name, &self.settled);
            let ahead = mark.duration_since(now);
            warn!(%job, %mark, %ahead, "a tick ahead of this clock is marked as run: no tick until \
                then is run; set the clocks right, and call SchedulerHandle::reset_mark");
        }
    }

    /// Warns of a job that nobody has run, and nobody will: its year was mistyped, say.
    ///
    /// It is no error, since a program is also started again after its last tick.
    fn warn_if_never(&self, standing: &Standing) {
        let (job, now) = (&self.runner.job, self.runner.wall.now());
        let is_run = standing.settled(job.attempts).is_some();
        let is_due = job.schedule.due(self.settled, now, job.missed).is_some();
        if !is_run && !is_due && job.schedule.next(now).is_none() {
            let (job, schedule) = (&job.name, &job.schedule);
            warn!(%job, ?schedule, "a schedule has no tick any more, and none was ever run: \
                the job runs only when somebody asks for it");
        }
    }

    async fn see_to(&mut self, tick: Timestamp) -> Duration {
        let runner = Arc::clone(&self.runner);
        // First a look that costs little: mostly another machine was faster.
        let run = match runner.standing().await {
            Ok(standing) => {
                self.learn(&standing);
                match standing.settled(runner.job.attempts) {
                    Some(settled) if tick <= settled => {
                        runner.without(tick, Skip::AlreadyRan(settled))
                    }
                    _ => runner.run_tick(tick, self.here).await,
                }
            }
            Err(error) => runner.without(tick, Skip::Unknown(error)),
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
            Outcome::Skipped(Skip::AlreadyRan(settled)) => self.settle(*settled),
            Outcome::Skipped(Skip::Held(_)) => {
                self.pending = Some(run);
                return if self.unfinished == Some(tick) { self.watch_pause() } else { pause };
            }
            Outcome::Skipped(_) | Outcome::Missed(_) | Outcome::Died(_) => (),
            Outcome::Disabled(_) => {
                self.tell(&run);
                return self.until_next();
            }
        }
        self.tell(&run);
        if self.settled >= tick { Duration::ZERO } else { pause }
    }

    /// The machine that ran it may be ahead of this one: the clock is not asked.
    fn settle(&mut self, settled: Timestamp) {
        self.settled = self.settled.max(settled);
        self.accounted = self.accounted.max(settled);
        self.pending = None;
    }

    /// With no tick due: sees to it that runs that died and ticks that nobody began are written into
    /// the history, by this machine or another. Returns the time until the next look.
    async fn account(&mut self) -> Duration {
        if !self.is_watching && !self.has_missed() {
            return self.until_next();
        }
        if let Ok(standing) = self.runner.standing().await {
            self.learn(&standing);
            let now = self.runner.wall.now();
            if self.due().is_some() {
                return Duration::ZERO;
            }
            if !self.is_watching && !self.has_missed() {
                return self.until_next();
            }
            if self.runner.account(self.here).await {
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

    /// How often a lease is looked at that may expire.
    fn watch_pause(&self) -> Duration {
        let options = self.runner.locker.options();
        options.heartbeat_period().max(options.poll_interval())
    }

    /// Tells of the run that was pending, unless it still is.
    fn give_up(&mut self, due: Option<Timestamp>) {
        if let Some(run) = self.pending.take_if(|run| due != Some(run.scheduled)) {
            self.tell(&run);
        }
    }

    /// Tells of a run; of one that did not come about only once for each reason.
    fn tell(&mut self, run: &Run) {
        let kind = Some((run.scheduled, kind(&run.outcome)));
        if run.body.is_some() || self.told != kind {
            self.runner.tell(run);
        }
        self.told = kind;
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

/// More than a clock's drift comes to from one look to the next.
const SHORTEST_STEP: Duration = Duration::from_millis(100);

/// A scheduler that runs nothing keeps saying so.
const BETWEEN_WARNINGS: SignedDuration = SignedDuration::from_hours(1);
