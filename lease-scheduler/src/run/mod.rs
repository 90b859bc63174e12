//! One run of a job: checks whether it may run, obtains its lease, runs its body, writes its end.
//!
//! Start with [`Runner`]. [`cause`] says what has caused a run, and [`reconcile`] records crashed runs and missed ticks.

pub(crate) mod cause;
mod reconcile;

use std::any::Any;
use std::convert::Infallible;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use jiff::{SignedDuration, Timestamp};
use lease_core::store::{BootClock, Clock, LeaseTable, within, work_under};
use lease_core::{
    Attempt, Change, Lease, Locker, Reservation, StoreError, StoreErrorKind, Written,
};
use tokio::select;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, info_span, warn};

use crate::clock::WallClock;
use crate::control::JobControl;
use crate::control::trigger::{Request, TriggerNumber};
use crate::history::{Ending, PastRun};
use crate::job::{Job, JobContext, JobError, LONGEST_NOTE};
use crate::job_record::{JobRecord, RunStart};
use crate::outcome::{BodyRun, DisabledBy, JobMetrics, Outcome, Run, Skip};
use crate::run::cause::Cause;
use crate::schedule::{Misfire, MissedTicks};
use crate::text::error_chain;

/// Runs one job on this machine.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) job: Job,
    pub(crate) locker: Locker,
    pub(crate) table: Arc<dyn LeaseTable>,
    pub(crate) control: JobControl,
    /// How often the control record is read, if the store does not report changes.
    pub(crate) command_poll: Duration,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) metrics: Arc<dyn JobMetrics>,
    /// Cancelled when the scheduler stops.
    pub(crate) stopping: CancellationToken,
    /// How long a body may still run after the scheduler has stopped.
    pub(crate) grace: Duration,
    /// The tasks of this job.
    pub(crate) tasks: TaskTracker,
}

/// A job whose lease was obtained, and its record at that time.
pub(crate) struct HeldJob {
    pub(crate) lease: Lease,
    pub(crate) record: JobRecord,
}

impl Runner {
    /// Runs the job once on demand, if it may run.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping this future drops the body and releases the lease.
    pub(crate) async fn run_now(&self) -> Run {
        let now = self.wall.now();
        self.run(now, &Cause::Call, now).await
    }

    /// Runs the job for `tick`, if it may run. If the record has no mark, ticks count from `since` on.
    pub(crate) async fn run_tick(&self, tick: Timestamp, since: Timestamp) -> Run {
        self.run(tick, &Cause::Tick(tick), since).await
    }

    async fn run(&self, scheduled: Timestamp, cause: &Cause, since: Timestamp) -> Run {
        let (body, outcome) = match self.obtain(cause.tick()).await {
            Ok(held) => self.run_held(held, scheduled, cause, since).await,
            Err(outcome) => (None, outcome),
        };
        Run { body, ..self.unstarted(scheduled, outcome) }
    }

    /// Returns the report of a run without a body.
    fn unstarted(&self, scheduled: Timestamp, outcome: Outcome) -> Run {
        Run { job: self.job.name.clone(), scheduled, trigger: None, body: None, outcome }
    }

    /// Runs the job for a trigger, under a lease that was obtained for it.
    pub(crate) async fn run_trigger(&self, held: HeldJob, request: Request) -> Run {
        let (scheduled, now) = (request.requested, self.wall.now());
        let trigger = Some(request.number);
        let cause = Cause::Trigger(request);
        let (body, outcome) = self.run_held(held, scheduled, &cause, now).await;
        Run { trigger, body, ..self.unstarted(scheduled, outcome) }
    }

    /// Returns the tick to run at `now`: the tick that is due after `settled`, or else the `unfinished` tick,
    /// if no later tick has passed.
    pub(crate) fn due(
        &self,
        settled: Timestamp,
        unfinished: Option<Timestamp>,
        now: Timestamp,
        misfire: Misfire,
    ) -> Option<Timestamp> {
        let schedule = &self.job.schedule;
        schedule.due(settled, now, misfire).or_else(|| {
            let is_last = |tick: &Timestamp| schedule.next(*tick).is_none_or(|next| next > now);
            unfinished.filter(|tick| *tick <= now).filter(is_last)
        })
    }

    /// Returns the pause after a failed attempt. The pause ends at the next tick after `after` at the latest.
    pub(crate) fn pause_after(&self, attempt: u32, after: Timestamp) -> Duration {
        let next = self.job.schedule.next(after);
        let left = next.map_or(SignedDuration::MAX, |next| next.duration_since(self.wall.now()));
        let left = Duration::try_from(left).unwrap_or_default();
        self.job.backoff.after(attempt).min(left)
    }

    /// Whether a tick is due that has not started and does not count as passed.
    fn has_due_tick(&self, record: &JobRecord, since: Timestamp) -> bool {
        let settled = record.counts_from(since, self.job.attempts);
        let due = self.due(settled, None, self.wall.now(), self.job.misfire);
        due.is_some_and(|tick| record.accounted().is_none_or(|accounted| tick > accounted))
    }

    /// Whether the pause after the last attempt at a trigger is over. The reservation of the key may end earlier,
    /// because of a tick. If this clock is behind the clock of that attempt, only the reservation counts.
    pub(crate) fn has_rested(&self, record: &JobRecord) -> bool {
        let Some(ended) = record.trigger_ended() else { return true };
        let rested = Duration::try_from(self.wall.now().duration_since(ended));
        rested.map_or(true, |rested| rested >= self.job.backoff.after(record.trigger_attempt()))
    }

    /// Returns the report of a run that was skipped because of `skip`.
    pub(crate) fn skipped(&self, scheduled: Timestamp, skip: Skip) -> Run {
        self.unstarted(scheduled, Outcome::Skipped(skip))
    }

    /// Reports missed ticks and a run that died. Called after both were written to the history.
    pub(crate) fn report_missed_and_died(
        &self,
        missed: Option<MissedTicks>,
        died: Option<PastRun>,
    ) {
        let died = died.map(|run| (run.scheduled, Outcome::Died(run)));
        let missed = missed.map(|ticks| (ticks.last, Outcome::Missed(ticks)));
        for (scheduled, outcome) in died.into_iter().chain(missed) {
            self.report(&self.unstarted(scheduled, outcome));
        }
    }

    /// Logs a run and reports it to the metrics.
    pub(crate) fn report(&self, run: &Run) {
        run.log();
        self.metrics.ended(run);
    }

    /// Reads the job's record.
    pub(crate) async fn read_record(&self) -> Result<JobRecord, StoreError> {
        let limit = self.locker.options().request_timeout();
        match within(limit, self.table.read(&self.job.name)).await? {
            Some(record) => JobRecord::read(&record.attributes),
            None => Ok(JobRecord::default()),
        }
    }

    /// Checks the condition and the switch, then obtains the lease.
    async fn obtain(&self, tick: Option<Timestamp>) -> Result<HeldJob, Outcome> {
        if !(self.job.only_if)() {
            return Err(Outcome::Disabled(DisabledBy::OnlyIf));
        }
        // If it cannot be read whether the job is paused or switched off, nothing runs.
        if tick.is_some() && self.is_paused().await.map_err(unknown)? {
            return Err(Outcome::Disabled(DisabledBy::Pause));
        }
        if !self.is_on().await.map_err(unknown)? {
            return Err(Outcome::Disabled(DisabledBy::Switch));
        }
        if self.stopping.is_cancelled() {
            return Err(Outcome::Skipped(Skip::Stopping));
        }
        let lease = match self.locker.obtain(&self.job.name).await.map_err(unknown)? {
            Attempt::Obtained(lease) => lease,
            Attempt::Held(holder) => return Err(Outcome::Skipped(Skip::Held(holder))),
        };
        // The store returned the attributes with the grant. So they include the marks of all earlier holders.
        let record = JobRecord::read(lease.attributes()).map_err(unknown)?;
        if let Some(skip) = tick.and_then(|tick| record.skip(tick, self.job.attempts)) {
            return Err(Outcome::Skipped(skip));
        }
        // The last check: once a tick is marked, it must run.
        if self.stopping.is_cancelled() {
            return Err(Outcome::Skipped(Skip::Stopping));
        }
        Ok(HeldJob { lease, record })
    }

    pub(crate) async fn is_paused(&self) -> Result<bool, StoreError> {
        self.control.is_paused(&self.job.name).await
    }

    pub(crate) async fn is_on(&self) -> Result<bool, StoreError> {
        let Some(switch) = &self.job.switch else { return Ok(true) };
        within(self.locker.options().request_timeout(), switch.is_on()).await
    }

    async fn run_held(
        &self,
        HeldJob { lease, mut record }: HeldJob,
        scheduled: Timestamp,
        cause: &Cause,
        since: Timestamp,
    ) -> (Option<BodyRun>, Outcome) {
        let clock = BootClock::new();
        let obtained = clock.now();
        let context = JobContext {
            grant: lease.grant().clone(),
            scheduled,
            attempt: record.next_attempt(cause),
            arguments: cause
                .trigger()
                .map(|trigger| trigger.arguments.clone().into())
                .unwrap_or_default(),
            trigger: cause.trigger().map(|trigger| trigger.number),
            cancelled: lease.cancelled_on_loss(),
            note: Arc::default(),
        };
        if let Err(skip) = self.mark_start(&lease, &mut record, &context, cause, since).await {
            drop(lease.release().await);
            return (None, Outcome::Skipped(skip));
        }

        let (began, began_at) = (self.wall.now(), clock.now());
        let outcome = self.run_body(&lease, context.clone(), cause.tick()).await;
        let run_time = clock.now().since(began_at);

        let note = context.note.lock().clone();
        if let Some((ending, note)) = written_ending(&outcome, &note) {
            let kept = self.job.history_length;
            let change = record.end(cause, ending, &note, kept, self.wall.now());
            if let Err(skip) = self.write(&lease, &change).await {
                let job = &self.job.name;
                warn!(%job, why = %skip, "end of run not written to the history");
            }
            let hold = self.job.min_hold.saturating_sub(clock.now().since(obtained));
            let hold = hold.max(self.pause_before_next(&record, &outcome, &context, cause, since));
            // If the release fails, the locker has logged the error, and the lease expires.
            drop(match hold {
                Duration::ZERO => lease.release().await,
                hold => lease.release_reserved(Reservation::clamped(hold)).await,
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

    /// While the key is reserved, no machine can start the next attempt, even if its clock is ahead.
    fn pause_before_next(
        &self,
        record: &JobRecord,
        outcome: &Outcome,
        context: &JobContext,
        cause: &Cause,
        since: Timestamp,
    ) -> Duration {
        match cause {
            _ if !self.may_try_again(outcome, context.attempt) => Duration::ZERO,
            Cause::Tick(tick) => self.pause_after(context.attempt, *tick),
            Cause::Trigger(_) if self.has_due_tick(record, since) => Duration::ZERO,
            Cause::Trigger(_) => self.pause_after(context.attempt, self.wall.now()),
            Cause::Call => Duration::ZERO,
        }
    }

    /// Marks the start of a run in the record. Reports a run that died and the ticks that were missed before.
    async fn mark_start(
        &self,
        lease: &Lease,
        record: &mut JobRecord,
        context: &JobContext,
        cause: &Cause,
        since: Timestamp,
    ) -> Result<(), Skip> {
        let died = record.running();
        let missed = cause.tick().and_then(|tick| {
            let before = tick.checked_sub(SignedDuration::from_nanos(1)).ok()?;
            self.job.schedule.ticks_between(self.accounted(record, since), before)
        });
        let mark = record.start(&RunStart {
            context,
            cause,
            missed: missed.as_ref(),
            schedule: &self.job.schedule.stored_text(),
            attempts: self.job.attempts,
            kept: self.job.history_length,
            now: self.wall.now(),
        });
        self.mark(lease, &mark).await?;
        self.report_missed_and_died(missed, died);
        Ok(())
    }

    /// Whether another attempt may follow this outcome.
    pub(crate) fn may_try_again(&self, outcome: &Outcome, attempt: u32) -> bool {
        let has_failed = matches!(outcome, Outcome::Failed(_) | Outcome::TimedOut(_));
        has_failed && attempt < self.job.attempts
    }

    /// Runs the body until it ends, the lease is lost, or the timeout or the grace is over. The body is
    /// dropped before this returns, and so before the lease is released.
    async fn run_body(
        &self,
        lease: &Lease,
        context: JobContext,
        tick: Option<Timestamp>,
    ) -> Outcome {
        let cancelled = context.cancelled.clone();
        let overdue = self.warn_when_overdue(&context, tick);
        let body_context = context.clone();
        let body = async { self.job.work.run(body_context).await };
        let body = work_under(context.grant.clone(), body);
        let span = info_span!(
            "job", key = %context.grant.key, lessee = %context.grant.lessee, token = %context.token(),
            attempt = context.attempt, scheduled = %context.scheduled,
            trigger = context.trigger.map(TriggerNumber::get)
        );
        let body = AssertUnwindSafe(body.instrument(span)).catch_unwind();
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
                // Polls the body first: a body that ends exactly at its timeout has not timed out.
                biased;
                ended = body => match ended {
                    Ok(Ok(())) => Outcome::Finished,
                    Ok(Err(error)) => Outcome::Failed(error),
                    Err(panic) => Outcome::Failed(panic_error(&*panic)),
                },
                () = grace_is_over => Outcome::Failed(JobError::from(format!(
                    "the scheduler stopped, and the body still ran after {:?}",
                    self.grace
                ))),
                limit = timeout => Outcome::TimedOut(limit),
                never = overdue => match never {},
            }
        };
        lease.run_until_lost(limited).await.unwrap_or_else(Outcome::Lost)
    }

    /// Warns if the body runs for longer than the time to its next tick, and again each time that the run
    /// time has doubled.
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
                its ticks are missed until it ends");
            pause = age;
            age = age.saturating_mul(2);
        }
    }

    /// Writes the mark. A body starts only after this has succeeded.
    async fn mark(&self, lease: &Lease, change: &Change) -> Result<(), Skip> {
        let written = match self.write(lease, change).await {
            Ok(Marked::AsExpected) => return Ok(()),
            Err(lost @ Skip::LostBefore(_)) => return Err(lost),
            unclear => unclear,
        };
        // The mark may be this run's own: the first update was applied, its answer was lost, and the repeated
        // update found the mark. Without this read, the tick would be marked and would never run.
        let record = self.read_record().await.map_err(Skip::Unknown)?;
        if record.is_running(lease.token()) && lease.is_held() {
            return Ok(());
        }
        let _unexpected = written?;
        let text = "the record of this job was changed by a writer without the lease";
        let error = StoreError::new(StoreErrorKind::Corrupt, text);
        Err(record.settled(1).map_or(Skip::Unknown(error), Skip::AlreadyRan))
    }

    /// Writes `change`. Tries up to three times, while the outcome is unknown and the lease is held.
    pub(crate) async fn write(&self, lease: &Lease, change: &Change) -> Result<Marked, Skip> {
        let options = self.locker.options();
        let mut tries = 0;
        loop {
            tries += 1;
            match lease.update(&*self.table, change).await {
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

/// Returns the ending and the note for the history; `None` if the run has lost its lease, and cannot write
/// them.
fn written_ending(outcome: &Outcome, note: &str) -> Option<(Ending, String)> {
    match outcome {
        Outcome::Finished => Some((Ending::Finished, note.to_owned())),
        Outcome::Failed(error) => {
            let text = error_chain(&**error);
            let whole = if note.is_empty() { text } else { format!("{note}: {text}") };
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

/// Returns the error of a body that panicked.
fn panic_error(panic: &(dyn Any + Send)) -> JobError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    JobError::from(format!("the body panicked: {}", text.unwrap_or("no message")))
}

const MOST_TRIES: u32 = 3;
