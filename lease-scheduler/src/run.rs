//! One run of a job: from the question whether it may, to the release of its lease.

use std::any::Any;
use std::convert::Infallible;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use jiff::{SignedDuration, Timestamp};
use lease_core::{
    Attempt, BootClock, Change, Clock, Grant, Lease, LeaseTable, Locker, StoreError,
    StoreErrorKind, Written, within,
};
use tokio::select;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock::WallClock;
use crate::error::sentence;
use crate::history::{Ending, PastRun};
use crate::job::{Job, JobContext, JobError, LONGEST_NOTE};
use crate::outcome::{BodyRun, DisabledBy, JobMetrics, Outcome, Run, Skip};
use crate::schedule::{Missed, MissedTicks};
use crate::standing::{Beginning, Standing};

tokio::task_local! {
    /// The grant of the job whose body this task runs.
    pub(crate) static RUNNING: Grant;
}

/// A job on this machine, and all that running it takes.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) job: Job,
    pub(crate) locker: Locker,
    pub(crate) table: Arc<dyn LeaseTable>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) metrics: Arc<dyn JobMetrics>,
    /// Cancelled when the scheduler is to stop.
    pub(crate) stopping: CancellationToken,
    /// How long a body may go on then.
    pub(crate) grace: Duration,
}

/// A lease that was obtained, and its record as it was then.
struct Held {
    lease: Lease,
    standing: Standing,
}

impl Runner {
    /// Runs the job once because somebody asks for it now, if it may be run.
    ///
    /// Dropped on the way, it leaves a lease that is released.
    pub(crate) async fn run_now(&self) -> Run {
        let now = self.wall.now();
        self.run(now, None, now).await
    }

    /// Runs the job for `tick`, if it may be run. Ticks count from `since` on, if the record does not
    /// say otherwise.
    pub(crate) async fn run_tick(&self, tick: Timestamp, since: Timestamp) -> Run {
        self.run(tick, Some(tick), since).await
    }

    async fn run(&self, scheduled: Timestamp, tick: Option<Timestamp>, since: Timestamp) -> Run {
        let (body, outcome) = match self.obtain(tick).await {
            Ok(held) => self.run_under(held, scheduled, tick, since).await,
            Err(outcome) => (None, outcome),
        };
        Run { job: self.job.name.clone(), scheduled, body, outcome }
    }

    /// The tick to be run at `now`, if all up to `settled` are; or the `unfinished` one, if no later
    /// tick has come.
    pub(crate) fn due(
        &self,
        settled: Timestamp,
        unfinished: Option<Timestamp>,
        now: Timestamp,
        missed: Missed,
    ) -> Option<Timestamp> {
        let schedule = &self.job.schedule;
        schedule.due(settled, now, missed).or_else(|| {
            let is_last = |tick: &Timestamp| schedule.next(*tick).is_none_or(|next| next > now);
            unfinished.filter(|tick| *tick <= now).filter(is_last)
        })
    }

    /// The pause after a failed attempt at `tick`, which ends with the next tick.
    pub(crate) fn pause_after(&self, attempt: u32, tick: Timestamp) -> Duration {
        let next = self.job.schedule.next(tick);
        let left = next.map_or(SignedDuration::MAX, |next| next.duration_since(self.wall.now()));
        let left = Duration::try_from(left).unwrap_or_default();
        self.job.backoff.after(attempt).min(left)
    }

    /// A run that did not come about.
    pub(crate) fn without(&self, scheduled: Timestamp, skip: Skip) -> Run {
        let outcome = Outcome::Skipped(skip);
        Run { job: self.job.name.clone(), scheduled, body: None, outcome }
    }

    /// Tells of missed ticks, and of a run that died, once they are in the history.
    pub(crate) fn tell_of(&self, missed: Option<MissedTicks>, died: Option<PastRun>) {
        let died = died.map(|run| (run.scheduled, Outcome::Died(run)));
        let missed = missed.map(|ticks| (ticks.last, Outcome::Missed(ticks)));
        for (scheduled, outcome) in died.into_iter().chain(missed) {
            self.tell(&Run { job: self.job.name.clone(), scheduled, body: None, outcome });
        }
    }

    /// Tells everybody what came of a run.
    pub(crate) fn tell(&self, run: &Run) {
        run.log();
        self.metrics.ended(run);
    }

    /// Reads where the job stands.
    pub(crate) async fn standing(&self) -> Result<Standing, StoreError> {
        let limit = self.locker.options().request_timeout();
        match within(limit, self.table.read(&self.job.name)).await? {
            Some(record) => Standing::read(&record.attributes),
            None => Ok(Standing::default()),
        }
    }

    /// Asks whatever has a say, the lease last.
    async fn obtain(&self, tick: Option<Timestamp>) -> Result<Held, Outcome> {
        if !(self.job.only_if)() {
            return Err(Outcome::Disabled(DisabledBy::OnlyIf));
        }
        // If the switch cannot be read, nothing runs.
        if !self.is_on().await.map_err(unknown)? {
            return Err(Outcome::Disabled(DisabledBy::Switch));
        }
        self.check_stopping()?;
        let lease = match self.locker.obtain(&self.job.name).await.map_err(unknown)? {
            Attempt::Obtained(lease) => lease,
            Attempt::Held(holder) => return Err(Outcome::Skipped(Skip::Held(holder))),
        };
        // As it was when the key was granted: whoever has marked a tick has done so before.
        let standing = Standing::read(lease.attributes()).map_err(unknown)?;
        if let (Some(tick), Some(settled)) = (tick, standing.settled(self.job.attempts))
            && tick <= settled
        {
            return Err(Outcome::Skipped(Skip::AlreadyRan(settled)));
        }
        // The last moment at which nothing is lost by it: once a tick is marked, it is to be run.
        self.check_stopping()?;
        Ok(Held { lease, standing })
    }

    pub(crate) async fn is_on(&self) -> Result<bool, StoreError> {
        let Some(switch) = &self.job.switch else { return Ok(true) };
        within(self.locker.options().request_timeout(), switch.is_on()).await
    }

    fn check_stopping(&self) -> Result<(), Outcome> {
        if self.stopping.is_cancelled() {
            return Err(Outcome::Skipped(Skip::Stopping));
        }
        Ok(())
    }

    async fn run_under(
        &self,
        Held { lease, mut standing }: Held,
        scheduled: Timestamp,
        tick: Option<Timestamp>,
        since: Timestamp,
    ) -> (Option<BodyRun>, Outcome) {
        let clock = BootClock::new();
        let obtained = clock.now();
        let context = JobContext {
            grant: lease.grant().clone(),
            scheduled,
            attempt: standing.next_attempt(tick),
            cancelled: lease.cancelled_on_loss(),
            note: Arc::default(),
        };
        let died = standing.running();
        let missed = tick.and_then(|tick| {
            let before = tick.checked_sub(SignedDuration::from_nanos(1)).ok()?;
            self.job.schedule.ticks_between(self.accounted(&standing, since), before)
        });
        let beginning = Beginning {
            context: &context,
            tick,
            missed: missed.as_ref(),
            schedule: &self.job.schedule.words(),
            now: self.wall.now(),
        };
        let mark = standing.begin(&beginning);
        if let Err(skip) = self.mark(&lease, &mark).await {
            drop(lease.release().await);
            return (None, Outcome::Skipped(skip));
        }
        self.tell_of(missed, died);

        let (began, start) = (self.wall.now(), clock.now());
        let outcome = self.run_body(&lease, context.clone(), tick).await;
        let run_time = clock.now().since(start);

        let note = context.note.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((ending, note)) = written_ending(&outcome, &note) {
            let change = standing.end(tick, ending, &note, self.wall.now());
            if let Err(skip) = self.write(&lease, &change).await {
                let job = &self.job.name;
                warn!(%job, why = %skip, "the end of a run could not be written to its history");
            }
            let kept = self.job.at_least.saturating_sub(clock.now().since(obtained));
            // No machine can begin the next attempt while the key is reserved, whatever its clock says.
            let kept = match tick.filter(|_| self.may_try_again(&outcome, context.attempt)) {
                Some(tick) => kept.max(self.pause_after(context.attempt, tick)),
                None => kept,
            };
            // If the store does not answer, the ttl will do; the locker has logged it.
            drop(match kept {
                Duration::ZERO => lease.release().await,
                kept => lease.release_reserved(kept).await,
            });
        }
        let body = BodyRun {
            token: context.token(),
            attempt: context.attempt,
            began,
            latency: Duration::try_from(began.duration_since(scheduled)).unwrap_or_default(),
            run_time,
            note,
        };
        (Some(body), outcome)
    }

    /// Whether a failed attempt is followed by another.
    pub(crate) fn may_try_again(&self, outcome: &Outcome, attempt: u32) -> bool {
        let has_failed = matches!(outcome, Outcome::Failed(_) | Outcome::TimedOut(_));
        has_failed && attempt < self.job.attempts
    }

    /// Drops the body when it returns, and before the lease is released.
    async fn run_body(
        &self,
        lease: &Lease,
        context: JobContext,
        tick: Option<Timestamp>,
    ) -> Outcome {
        let cancelled = context.cancelled.clone();
        let overdue = self.warn_when_overdue(&context, tick);
        let of_body = context.clone();
        let body = async { self.job.work.run(of_body).await };
        let body = RUNNING.scope(context.grant.clone(), body);
        let body = AssertUnwindSafe(body).catch_unwind();
        let timeout = async {
            match self.job.timeout {
                Some(limit) => {
                    sleep(limit).await;
                    limit
                }
                None => pending().await,
            }
        };
        let grace_is_over = async {
            self.stopping.cancelled().await;
            cancelled.cancel();
            sleep(self.grace).await;
        };
        let limited = async {
            select! {
                // What is done is done, also at the last moment.
                biased;
                ended = body => match ended {
                    Ok(Ok(())) => Outcome::Finished,
                    Ok(Err(error)) => Outcome::Failed(error),
                    Err(panic) => Outcome::Failed(panicked(&*panic)),
                },
                () = grace_is_over => Outcome::Failed(JobError::from(format!(
                    "the scheduler stopped, and the body was not done within {:?}",
                    self.grace
                ))),
                limit = timeout => Outcome::TimedOut(limit),
                never = overdue => match never {},
            }
        };
        lease.run_until_lost(limited).await.unwrap_or_else(Outcome::Lost)
    }

    /// Warns of a body that runs for longer than the time to its next tick, and again each time that it
    /// has run for twice as long.
    async fn warn_when_overdue(&self, context: &JobContext, tick: Option<Timestamp>) -> Infallible {
        let period = tick.and_then(|tick| {
            let next = self.job.schedule.next(tick)?;
            Duration::try_from(next.duration_since(tick)).ok()
        });
        let Some(period) = period else { return pending().await };
        let (mut pause, mut age) = (period, period);
        loop {
            sleep(self.wall.timer_for(pause)).await;
            let (job, scheduled, token) = (&self.job.name, context.scheduled, context.token());
            warn!(%job, %scheduled, %token, ?age, ?period, "job runs for longer than its period: \
                its ticks are missed meanwhile");
            pause = age;
            age = age.saturating_mul(2);
        }
    }

    /// Writes the mark without which no body begins.
    async fn mark(&self, lease: &Lease, change: &Change) -> Result<(), Skip> {
        let written = match self.write(lease, change).await {
            Ok(Marked::AsExpected) => return Ok(()),
            Err(lost @ Skip::LostBefore(_)) => return Err(lost),
            unclear => unclear,
        };
        // It may be our own that is there: a request whose answer was lost, and its repetition. To
        // go by the answers alone would use up a tick for nobody.
        let standing = self.standing().await.map_err(Skip::Unknown)?;
        if standing.is_running(lease.token()) && lease.is_held() {
            return Ok(());
        }
        let _unexpected = written?;
        let sentence = "somebody without a lease has written to the record of this job";
        let error = StoreError::new(StoreErrorKind::Corrupt, sentence);
        Err(standing.settled(1).map_or(Skip::Unknown(error), Skip::AlreadyRan))
    }

    /// Repeats `change` until it is known what came of it, while that is worth it.
    pub(crate) async fn write(&self, lease: &Lease, change: &Change) -> Result<Marked, Skip> {
        let options = self.locker.options();
        let mut tries = 0;
        loop {
            tries += 1;
            let update = self.table.update(lease.grant(), change);
            match within(options.request_timeout(), update).await {
                Ok(Written::Applied) => return Ok(Marked::AsExpected),
                Ok(Written::Unexpected) => return Ok(Marked::Unexpected),
                Ok(Written::Lost(cause)) => return Err(Skip::LostBefore(cause)),
                Err(error) if tries < MOST_TRIES && error.is_retryable() && lease.is_held() => {
                    sleep(options.heartbeat_period() / 16).await;
                }
                Err(error) => return Err(Skip::Unknown(error)),
            }
        }
    }
}

pub(crate) enum Marked {
    AsExpected,
    Unexpected,
}

fn unknown(error: StoreError) -> Outcome {
    Outcome::Skipped(Skip::Unknown(error))
}

/// What is written of an outcome; `None` where nothing can be, since the lease was lost.
fn written_ending(outcome: &Outcome, note: &str) -> Option<(Ending, String)> {
    match outcome {
        Outcome::Finished => Some((Ending::Finished, note.to_owned())),
        Outcome::Failed(error) => {
            let sentence = sentence(&**error);
            let whole = if note.is_empty() { sentence } else { format!("{note}: {sentence}") };
            Some((Ending::Failed, whole.chars().take(LONGEST_NOTE).collect()))
        }
        Outcome::TimedOut(_) => Some((Ending::TimedOut, note.to_owned())),
        Outcome::Lost(_)
        | Outcome::Missed(_)
        | Outcome::Died(_)
        | Outcome::Skipped(_)
        | Outcome::Disabled(_) => None,
    }
}

fn panicked(panic: &(dyn Any + Send)) -> JobError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    JobError::from(format!("the body panicked: {}", text.unwrap_or("without a word")))
}

const MOST_TRIES: u32 = 3;
