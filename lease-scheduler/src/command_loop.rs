//! Serves the triggers of one job on one machine: starts, repeats or refuses them.

use std::error::Error;
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lease_core::store::{Freed, within};
use lease_core::{Attempt, Holder, Lease, StoreError};
use tokio::select;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::control::trigger::{Request, TriggerAnswer, TriggerNumber};
use crate::control::{ControlRecord, control_key};
use crate::job::Concurrency;
use crate::job_record::{JobRecord, first_seen};
use crate::outcome::Run;
use crate::run::{HeldJob, Runner};

/// Serves triggers until its scheduler stops.
///
/// A trigger starts at most once, and then once for each further attempt: a run marks its number in the job's
/// record, under the job's lease, before the body starts. A trigger is refused only while no scheduler has
/// taken it.
pub(crate) struct CommandLoop {
    runner: Arc<Runner>,
    /// When this loop started.
    started: Timestamp,
    /// The run of a trigger on this machine: at most one. A task of its own runs it, since a store that does not
    /// answer this loop must not delay the body.
    run: JoinSet<Run>,
    /// The number of the trigger that was started last on this machine.
    started_here: Option<TriggerNumber>,
    /// Whether the job's record had a run or a trigger without an end. Its machine may have died.
    is_watching: bool,
    is_registered: bool,
    /// The last answer that this loop has seen.
    last_answer: Option<TriggerNumber>,
    /// Whether the store reports changes of the control record.
    is_notified: bool,
}

/// Whether the body of a run has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Started,
    NotStarted,
}

impl CommandLoop {
    pub(crate) fn new(runner: Arc<Runner>) -> Self {
        let started = runner.wall.now();
        Self {
            runner,
            started,
            run: JoinSet::new(),
            started_here: None,
            is_watching: true, // reads the record once at the start
            is_registered: false,
            last_answer: None,
            is_notified: false,
        }
    }

    pub(crate) async fn run(mut self) {
        let stopping = self.runner.stopping.clone();
        let mut watch = None;
        while !stopping.is_cancelled() {
            // Before the record is read, so that no change is overlooked.
            if watch.is_none() {
                watch = self.start_watch().await;
            }
            self.is_notified = watch.as_ref().is_some_and(Freed::can_wake);
            let pause = match self.serve().await {
                Ok(pause) => pause,
                Err(error) => {
                    let (job, error) = (&self.runner.job.name, &error as &dyn Error);
                    debug!(%job, error, "triggers not read");
                    self.runner.locker.options().poll_interval()
                }
            };
            select! {
                // Looks at the run first: its end frees the job for a waiting trigger.
                biased;
                Some(ended) = self.run.join_next() => {
                    if self.finish(ended) == Body::NotStarted {
                        self.pause(&stopping).await;
                    }
                }
                () = stopping.cancelled() => (),
                () = changed(&mut watch) => watch = None,
                () = sleep(pause) => (),
            }
        }
        // The run gives its body the grace of the scheduler.
        while let Some(ended) = self.run.join_next().await {
            let _body = self.finish(ended);
        }
    }

    fn finish(&mut self, ended: Result<Run, JoinError>) -> Body {
        self.is_watching = true;
        match ended {
            Ok(run) => {
                self.runner.report(&run);
                if run.body.is_some() { Body::Started } else { Body::NotStarted }
            }
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_cancelled) => Body::NotStarted,
        }
    }

    /// Pauses after a mark that could not be written, so that the next attempt does not follow at once.
    async fn pause(&self, stopping: &CancellationToken) {
        select! {
            biased;
            () = stopping.cancelled() => (),
            () = sleep(self.runner.locker.options().poll_interval()) => (),
        }
    }

    async fn start_watch(&self) -> Option<Freed> {
        let key = control_key(&self.runner.job.name).ok()?;
        let limit = self.runner.locker.options().request_timeout();
        within(limit, self.runner.table.watch(&key)).await.ok()
    }

    /// Returns the pause between two reads while no trigger is known.
    fn idle_pause(&self) -> Duration {
        if self.is_notified { BETWEEN_READS_WITH_WATCH } else { self.runner.command_poll }
    }

    /// Looks at the trigger that waits, or at a run whose machine may have died. Returns the pause until the next
    /// call.
    async fn serve(&mut self) -> Result<Duration, StoreError> {
        if !self.is_registered && self.runner.job.schedule.is_on_demand() {
            self.register().await?;
        }
        let control = self.runner.control.read(&self.runner.job.name).await?;
        let last_answer = control.answers().next().map(|answer| answer.number);
        if last_answer != self.last_answer {
            // A trigger may have started and been answered between two reads. Its machine may die.
            (self.last_answer, self.is_watching) = (last_answer, true);
        }
        let Some(request) = &control.request else { return self.watch_runs().await };
        let record = self.runner.read_record().await?;
        if record.has_started(request.number) {
            self.is_watching = true;
            self.answer(&control, request, TriggerAnswer::Started).await?;
            return Ok(self.runner.locker.options().poll_interval());
        }
        if self.started_here == Some(request.number) && !self.run.is_empty() {
            return Ok(BETWEEN_READS_OF_TAKEN); // until the mark is written
        }
        self.serve_request(&control, request).await
    }

    /// Starts, refuses or leaves a trigger that has not started.
    async fn serve_request(
        &mut self,
        control: &ControlRecord,
        request: &Request,
    ) -> Result<Duration, StoreError> {
        let runner = &self.runner;
        let pause = runner.locker.options().poll_interval();
        let (is_taken, now) = (request.taken_by.is_some(), runner.wall.now());
        let is_expired = request.has_expired(now);
        // A taken trigger may have started meanwhile, so only a holder of the job's lease may refuse it.
        if is_expired && !is_taken {
            self.answer(control, request, TriggerAnswer::Expired).await?;
            return Ok(pause);
        }
        let is_on = runner.is_on().await?;
        if !is_on && !is_taken {
            self.answer(control, request, TriggerAnswer::Disabled).await?;
            return Ok(pause);
        }
        let may_run = is_on && (runner.job.only_if)();
        if !may_run && !is_expired {
            return Ok(pause);
        }
        let lease = match runner.locker.obtain(&runner.job.name).await? {
            Attempt::Obtained(lease) => lease,
            Attempt::Held(holder) => {
                if runner.job.concurrency == Concurrency::Forbid
                    && !is_taken
                    && self.is_busy(&holder).await?
                {
                    self.answer(control, request, TriggerAnswer::JobRuns).await?;
                }
                return Ok(pause);
            }
        };
        let record = JobRecord::read(lease.attributes())?;
        let held = HeldJob { lease, record };
        if let Some(chosen) = self.choose(control, request, &held, may_run).await? {
            self.start(held, chosen);
            return Ok(Duration::ZERO);
        }
        drop(held.lease.release().await);
        Ok(pause)
    }

    /// Chooses the trigger to start under the job's lease: an earlier one that has attempts left, or `request`.
    async fn choose(
        &self,
        control: &ControlRecord,
        request: &Request,
        held: &HeldJob,
        may_run: bool,
    ) -> Result<Option<Request>, StoreError> {
        let runner = &self.runner;
        let may_run = may_run && !runner.stopping.is_cancelled();
        let earlier = held.record.unfinished_trigger(runner.job.attempts);
        let has_rested = runner.has_rested(&held.record);
        if let Some(earlier) = earlier.filter(|_| may_run && has_rested) {
            return Ok(Some(earlier.clone()));
        }
        if held.record.has_started(request.number) {
            return Ok(None); // the next call writes the answer
        }
        if earlier.is_some() && may_run {
            // As during a run: the earlier trigger waits for its next attempt.
            if runner.job.concurrency == Concurrency::Forbid && request.taken_by.is_none() {
                self.answer(control, request, TriggerAnswer::JobRuns).await?;
            }
            return Ok(None);
        }
        if request.has_expired(runner.wall.now()) {
            self.answer(control, request, TriggerAnswer::Expired).await?;
            return Ok(None);
        }
        if !may_run {
            return Ok(None);
        }
        Ok(self.take(request, &held.lease).await?.then(|| request.clone()))
    }

    /// Takes a trigger, under the job's lease. From now on, only a later holder of this lease may refuse the trigger.
    ///
    /// A trigger that an earlier holder has taken is taken again: it may have been refused since it was read. The
    /// token makes each taken value different. So a refusal by an earlier holder no longer fits.
    async fn take(&self, request: &Request, lease: &Lease) -> Result<bool, StoreError> {
        let (control, name) = (&self.runner.control, &self.runner.job.name);
        let by = format!("{} {}", lease.lessee(), lease.token());
        let take = |record: &ControlRecord| {
            let is_same = record.request.as_ref() == Some(request);
            is_same.then(|| record.take(request, &by))
        };
        control.try_write(name, take).await
    }

    fn start(&mut self, held: HeldJob, request: Request) {
        let runner = Arc::clone(&self.runner);
        self.started_here = Some(request.number);
        self.run.spawn(async move { runner.run_trigger(held, request).await });
    }

    /// Whether the holder of the job's lease runs the job, or a failed trigger waits for its next attempt.
    async fn is_busy(&self, holder: &Holder) -> Result<bool, StoreError> {
        let record = self.runner.read_record().await?;
        let is_running =
            record.running().is_some_and(|run| holder.token.is_none_or(|token| token == run.token));
        Ok(is_running || record.unfinished_trigger(self.runner.job.attempts).is_some())
    }

    async fn answer(
        &self,
        control: &ControlRecord,
        request: &Request,
        answer: TriggerAnswer,
    ) -> Result<(), StoreError> {
        let runner = &self.runner;
        let change = |record: &ControlRecord| {
            let is_same = record.request == control.request;
            is_same.then(|| record.answer(request, answer))
        };
        if !runner.control.try_write(&runner.job.name, change).await? {
            return Ok(()); // another scheduler writes; the next call sees what it has written
        }
        let (job, trigger, by) = (&runner.job.name, request.number, &request.by);
        if answer == TriggerAnswer::Started {
            info!(%job, %trigger, by, "job triggered");
        } else {
            warn!(%job, %trigger, by, why = %answer, "trigger refused");
        }
        Ok(())
    }

    /// Repeats a trigger whose attempt has failed or died, and reports a run of a trigger that has died.
    async fn watch_runs(&mut self) -> Result<Duration, StoreError> {
        let idle = self.idle_pause();
        if !self.is_watching || !self.run.is_empty() {
            return Ok(idle);
        }
        let (runner, attempts) = (Arc::clone(&self.runner), self.runner.job.attempts);
        let record = runner.read_record().await?;
        // Ticks have a task of their own, which looks at their runs.
        let is_on_demand = runner.job.schedule.is_on_demand();
        let is_running = record.running().is_some_and(|run| run.trigger.is_some() || is_on_demand);
        if record.unfinished_trigger(attempts).is_some() {
            let may_run = (runner.job.only_if)() && runner.is_on().await?;
            if may_run
                && runner.has_rested(&record)
                && let Attempt::Obtained(lease) = runner.locker.obtain(&runner.job.name).await?
            {
                let held = HeldJob { record: JobRecord::read(lease.attributes())?, lease };
                let unfinished = held.record.unfinished_trigger(attempts).cloned();
                match unfinished.filter(|_| runner.has_rested(&held.record)) {
                    Some(request) => {
                        self.start(held, request);
                        return Ok(Duration::ZERO);
                    }
                    None => drop(held.lease.release().await),
                }
            }
        } else if !is_running || runner.reconcile(self.started).await {
            self.is_watching = false;
            return Ok(idle);
        }
        Ok(self.watch_pause(&record).min(self.idle_pause().max(LEAST_WATCH)))
    }

    /// Returns the pause between two checks of a lease that may expire, or of a trigger that is tried again.
    fn watch_pause(&self, record: &JobRecord) -> Duration {
        let options = self.runner.locker.options();
        if record.running().is_some() {
            return options.heartbeat_period().max(options.poll_interval());
        }
        self.runner.job.backoff.after(record.trigger_attempt()).max(options.poll_interval())
    }

    /// Writes the record of a job that has no ticks, so that other processes can find the job.
    async fn register(&mut self) -> Result<(), StoreError> {
        let (runner, text) = (&self.runner, self.runner.job.schedule.stored_text());
        let limit = runner.locker.options().request_timeout();
        let attributes = first_seen(self.started, &text);
        within(limit, runner.table.create(&runner.job.name, &attributes)).await?;
        let record = runner.read_record().await?;
        if record.schedule() != Some(text.as_str()) {
            runner.change_schedule(self.started).await;
            return Ok(()); // the next call checks it
        }
        self.is_registered = true;
        Ok(())
    }
}

/// Waits for a change of the control record. Without a watch, never returns.
async fn changed(watch: &mut Option<Freed>) {
    match watch {
        Some(watch) => drop(watch.next().await),
        None => pending().await,
    }
}

/// A watch may overlook a change, for example while a connection is down.
const BETWEEN_READS_WITH_WATCH: Duration = Duration::from_secs(10);

const BETWEEN_READS_OF_TAKEN: Duration = Duration::from_millis(100);

const LEAST_WATCH: Duration = Duration::from_secs(10);
