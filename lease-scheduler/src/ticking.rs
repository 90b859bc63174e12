//! One job's clockwork on one machine: waits for ticks, and sees to each of them.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::within;
use tokio::select;
use tokio::time::sleep;
use tracing::warn;

use crate::history::{Standing, first_seen};
use crate::outcome::{Outcome, Run, Skip};
use crate::run::Runner;

/// Runs a job's ticks until its scheduler stops.
///
/// A tick stays due here until its mark is seen in the table, or its time is over. To find the key
/// held is no reason to let go of it: the holder may be somebody whose clock is behind, and who still
/// runs the tick before; or somebody who dies before he has marked it.
pub(crate) struct Ticking {
    runner: Arc<Runner>,
    /// The last moment whose ticks are of no interest any more, as far as is known here.
    settled: Timestamp,
    is_known_to_the_table: bool,
    /// A run that did not come about, and may yet.
    pending: Option<Run>,
    /// Of which tick what was told last.
    told: Option<(Timestamp, Kind)>,
    /// Whether it was told already that the mark is far ahead.
    is_warned: bool,
}

impl Ticking {
    pub(crate) fn new(runner: Arc<Runner>) -> Self {
        let settled = runner.wall.now();
        Self {
            runner,
            settled,
            is_known_to_the_table: false,
            pending: None,
            told: None,
            is_warned: false,
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

    /// Sees to the tick that is due, if one is, and says how long to wait before the next look.
    async fn tick(&mut self) -> Duration {
        if !self.is_known_to_the_table {
            self.introduce().await;
        }
        let (job, wall) = (&self.runner.job, &self.runner.wall);
        let now = wall.now();
        if !self.is_warned && self.settled.duration_since(now) > FAR_AHEAD {
            // Nobody runs anything until then, and nothing else says so: no tick is due meanwhile.
            self.is_warned = true;
            let (job, mark) = (&job.name, &self.settled);
            warn!(%job, %mark, "a tick far ahead of this clock is marked as run: all until then are \
                skipped, by everybody; to run them, delete the record of this job");
        }
        let due = job.schedule.due(self.settled, now, job.missed);
        self.give_up(due);
        match due {
            Some(tick) => self.see_to(tick).await,
            None => self.until_next(),
        }
    }

    /// The time until the next tick, or a minute: the clock may be set meanwhile.
    fn until_next(&self) -> Duration {
        let (job, wall) = (&self.runner.job, &self.runner.wall);
        let now = wall.now();
        let next = job.schedule.next(self.settled.max(now));
        let left = next.map_or(SignedDuration::MAX, |next| next.duration_since(now));
        let left = Duration::try_from(left).unwrap_or_default();
        wall.timer_for(left.min(LONGEST_PAUSE)).min(LONGEST_PAUSE)
    }

    /// Lets the table know of a job that was never run, so that ticks can be missed from now on.
    async fn introduce(&mut self) {
        let limit = self.runner.locker.options().request_timeout();
        let name = &self.runner.job.name;
        let attributes = first_seen(self.settled);
        let created = self.runner.table.create(name, &attributes);
        if within(limit, created).await.is_err() {
            return; // and is tried again at the next look
        }
        if let Ok(standing) = self.runner.standing().await {
            self.is_known_to_the_table = true;
            self.settled = standing.begins(self.settled, self.runner.job.attempts);
            self.warn_if_never(&standing);
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
        // First a look that costs little: mostly somebody else was faster.
        let run = match runner.standing().await {
            Ok(standing) => match standing.settled(runner.job.attempts) {
                Some(settled) if tick <= settled => runner.without(tick, Skip::AlreadyRan(settled)),
                _ => runner.run(Some(tick)).await,
            },
            Err(error) => runner.without(tick, Skip::Unknown(error)),
        };
        match &run.outcome {
            Outcome::Finished => self.settle(tick),
            Outcome::Failed(_) | Outcome::Lost(_) => {
                if run.body.as_ref().is_some_and(|body| body.attempt >= runner.job.attempts) {
                    self.settle(tick);
                }
            }
            Outcome::Skipped(Skip::AlreadyRan(settled)) => self.settle(*settled),
            Outcome::Skipped(Skip::Held(_)) => {
                self.pending = Some(run);
                return runner.locker.options().poll_interval();
            }
            Outcome::Skipped(_) => (),
            Outcome::Disabled(_) => {
                self.tell(&run);
                return self.until_next();
            }
        }
        self.tell(&run);
        if self.settled >= tick { Duration::ZERO } else { runner.locker.options().poll_interval() }
    }

    /// Whoever ran it may be ahead of us: the clock is not asked.
    fn settle(&mut self, settled: Timestamp) {
        self.settled = self.settled.max(settled);
        self.pending = None;
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

/// Clocks that are set right by the network are not so far apart, and somebody has to know.
const FAR_AHEAD: SignedDuration = SignedDuration::from_hours(24);
