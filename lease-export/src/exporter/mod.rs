//! The exporter: one process at a time sends what is pending.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{BootClock, Clock, Grant, current_grant};
use lease_core::{
    Attempt, FencingToken, HandOver, Handed, Holder, InvalidInput, Lease, LeaseKey, LeaseOptions,
    Locker, Released, StoreError, Switch, Ttl,
};
use tracing::{info, warn};

use crate::bucket::BucketStore;
use crate::buffer::{EventBuffer, Intake};
use crate::collect::{BucketSource, Poured};
use crate::dead_letters::DeadLetters;
use crate::exporter::error::ExportError;
use crate::exporter::exported::{Exported, Flushed, JobFinished, Scheduled};
use crate::exporter::failures::Failures;
use crate::exporter::job::ExportJob;
use crate::exporter::sending::Sending;
use crate::queue::JobQueue;
use crate::sink::{Retries, Sink};

pub(crate) mod error;
pub(crate) mod exported;
mod failures;
pub(crate) mod job;
pub(crate) mod operator;
mod sending;

/// Sends pending events to a sink, one exporter at a time, each event at least once.
///
/// An export holds the lease from before it reads the first event until after it has removed the last
/// one. The buffer refuses an exporter with an old token. The exporter removes events after the sink has
/// taken them, so a crash at any step loses none, and repeats some under the same ids.
/// [`flush_pending_events`](Self::flush_pending_events) exports at once.
/// [`schedule_job`](Self::schedule_job) leaves the export to a worker, which calls
/// [`run_next_job`](Self::run_next_job) or [`run_jobs`](Self::run_jobs).
///
/// Clones share everything.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use lease_core::Locker;
/// use lease_memory::MemoryStore;
/// use lease_export::{
///     Capacity, Event, EventBuffer, Exporter, Limits, MemoryBuffer, MemorySink, Parts, TableSwitch,
/// };
/// use lease_export::queue::MemoryQueue;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let locker = Locker::new(store.clone());
/// let buffer = MemoryBuffer::new(Capacity::default());
/// let sink = MemorySink::new(Limits::KINESIS);
/// let parts = Parts {
///     switch: Arc::new(TableSwitch::new("export/enabled".parse()?, &locker, store)),
///     queue: Arc::new(MemoryQueue::new(Duration::from_secs(60))),
///     buffer: Arc::new(buffer.clone()),
///     sink: Arc::new(sink.clone()),
/// };
/// let exporter = Exporter::new(locker, "export".parse()?, parts);
///
/// let event = Event::new("order-7".parse()?, &json!({ "order": 7 }))?;
/// let _kept = buffer.append(&[event]).await?;
/// assert_eq!(exporter.flush_pending_events(None).await?, 0); // not enabled yet
///
/// exporter.enable().await?;
/// assert_eq!(exporter.flush_pending_events(None).await?, 1);
/// assert_eq!(exporter.num_pending_events().await?, 0);
/// assert_eq!(sink.taken()[0].1.data(), b"{\"order\":7}\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Exporter {
    pub(crate) locker: Locker,
    pub(crate) key: LeaseKey,
    pub(crate) parts: Parts,
    pub(crate) source: Option<Arc<BucketSource>>,
    pub(crate) dead_letters: Option<Arc<dyn DeadLetters>>,
    pub(crate) retries: Retries,
    pub(crate) put_limit: Duration,
    pub(crate) most_failures: u32,
    pub(crate) failures: Arc<Failures>,
    pub(crate) stop_grace: Duration,
    least_per_job: u64,
    pub(crate) events_at_once: usize,
    hand_over_wait: Duration,
    clock: BootClock,
}

/// What an exporter is made of.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "whoever makes an exporter names all of them")]
pub struct Parts {
    /// Whether anything is exported at all.
    pub switch: Arc<dyn Switch>,
    /// How jobs come to workers: a queue of this exporter's own.
    pub queue: Arc<dyn JobQueue>,
    /// Where events wait.
    pub buffer: Arc<dyn EventBuffer>,
    /// Where they go.
    pub sink: Arc<dyn Sink>,
}

impl Exporter {
    /// An exporter of `parts`, under the lease `key`.
    ///
    /// Give all processes the same `key`, and no job of a scheduler the same name: a job that runs the
    /// exporter would hold its lease. How long the lease lasts without a heartbeat, and so how
    /// long nothing is exported after a crash, is the `locker`'s option.
    pub fn new(locker: Locker, key: LeaseKey, parts: Parts) -> Self {
        Self {
            locker,
            key,
            parts,
            source: None,
            dead_letters: None,
            retries: Retries::default(),
            put_limit: Duration::from_secs(30),
            most_failures: 60,
            failures: Arc::default(),
            stop_grace: Duration::from_secs(30),
            least_per_job: 1,
            events_at_once: 5_000,
            hand_over_wait: Duration::from_secs(6 * 60),
            clock: BootClock::new(),
        }
    }

    /// Pours closed buckets into the buffer at the beginning of each job. What fails there keeps back
    /// nothing that is pending: the job goes on, and says it in
    /// [`source_error`](Exported::source_error).
    #[must_use]
    pub fn with_source(mut self, source: BucketSource) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Buries events that fit into no record, or that the sink refuses for good. By default they are
    /// [set aside](EventBuffer::set_aside) in the buffer, until an operator
    /// [deletes](crate::Operator::delete_aside) them: so none is lost before somebody has
    /// said where to, and none keeps back the rest.
    #[must_use]
    pub fn with_dead_letters(mut self, dead_letters: Arc<dyn DeadLetters>) -> Self {
        self.dead_letters = Some(dead_letters);
        self
    }

    /// Sends again what failed as `retries` says.
    #[must_use]
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Gives up a request to the sink after `limit`, 1 ms to an hour, as if the sink were unavailable:
    /// otherwise one that never answers would keep the lease for ever. By default 30 s, several times
    /// what a service takes for its largest request over a slow line.
    ///
    /// # Errors
    ///
    /// Where `limit` is out of range.
    pub fn with_put_limit(mut self, limit: Duration) -> Result<Self, InvalidInput> {
        if !(Duration::from_millis(1)..=Duration::from_secs(60 * 60)).contains(&limit) {
            return Err(InvalidInput::new(format!(
                "limit {limit:?} is out of range: 1 ms to an hour"
            )));
        }
        self.put_limit = limit;
        Ok(self)
    }

    /// Gives up an event that the sink did not take in `exports` exports in which it took others, 1 or
    /// more: it goes the way of events that [cannot be sent](Self::with_dead_letters). Before that it is
    /// sent once more, in a record of its own. By default 60: an hour, if a job is scheduled each minute,
    /// which is longer than a shard is throttled.
    ///
    /// Each process counts the exports that it has run itself.
    #[must_use]
    pub fn with_most_failures(mut self, exports: u32) -> Self {
        self.most_failures = exports.max(1);
        self
    }

    /// Lets the job at hand go on for `grace` when [`run_jobs`](Self::run_jobs) is stopped. By default
    /// 30 s, as a scheduler's. A job that is dropped then is delivered again, to another worker, and its
    /// lease is released.
    #[must_use]
    pub fn with_stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Lets a job send nothing where fewer than `events` are pending; a flush always sends, and so does
    /// a job where nothing is taken in any more, or the buffer has no room. By default 1. The earlier
    /// exporter waited for a whole record of 1,000.
    #[must_use]
    pub fn with_least_per_job(mut self, events: u64) -> Self {
        self.least_per_job = events;
        self
    }

    /// Reads up to `events` events at once, 1 or more, and up to about as many bytes as a batch
    /// has. By default 5,000. It bounds memory, with the batch that is being packed.
    #[must_use]
    pub fn with_events_at_once(mut self, events: usize) -> Self {
        self.events_at_once = events.max(1);
        self
    }

    /// Keeps the lease for a job in the queue for `wait`: 100 ms to a day, 6 minutes by default, as
    /// the earlier exporter did. A job that waits longer obtains the lease anew. If a process dies
    /// after it took the lease and before the job was in the queue, nobody exports for that long.
    ///
    /// # Errors
    ///
    /// Where `wait` is out of range.
    pub fn with_hand_over_wait(mut self, wait: Duration) -> Result<Self, InvalidInput> {
        if !(LeaseOptions::MIN_TTL..=LeaseOptions::MAX_TTL).contains(&wait) {
            return Err(InvalidInput::new(format!(
                "wait {wait:?} is out of range: 100 ms to a day"
            )));
        }
        self.hand_over_wait = wait;
        Ok(self)
    }

    /// Where events wait: to append to.
    pub fn buffer(&self) -> &Arc<dyn EventBuffer> {
        &self.parts.buffer
    }

    /// Where changes are collected: to put into. `None` where there is no
    /// [source](Self::with_source).
    pub fn buckets(&self) -> Option<&Arc<dyn BucketStore>> {
        self.source.as_ref().map(|source| source.buckets())
    }

    /// Enables export, for every process that shares the switch.
    ///
    /// # Errors
    ///
    /// Where it is not known which way the switch is turned now.
    pub async fn enable(&self) -> Result<(), ExportError> {
        self.parts.switch.turn_on().await.map_err(ExportError::Switch)
    }

    /// Disables export: who is exporting goes on to the end, and nobody begins.
    ///
    /// # Errors
    ///
    /// Where it is not known which way the switch is turned now.
    pub async fn disable(&self) -> Result<(), ExportError> {
        self.parts.switch.turn_off().await.map_err(ExportError::Switch)
    }

    /// Whether export is enabled.
    ///
    /// # Errors
    ///
    /// Where the switch could not say.
    pub async fn is_enabled(&self) -> Result<bool, ExportError> {
        self.parts.switch.is_on().await.map_err(ExportError::Switch)
    }

    /// How many events are pending. Needs neither to be enabled nor the lease.
    ///
    /// # Errors
    ///
    /// Where the buffer could not say.
    pub async fn num_pending_events(&self) -> Result<u64, ExportError> {
        Ok(self.parts.buffer.pending().await?)
    }

    /// Leaves an export to a worker: if enabled, and if the lease is obtained, enqueues exactly one
    /// job, which carries the lease. Until that job has ended, nobody else schedules or flushes.
    /// It replaces jobs that nobody came for: their time is over, and one export is enough for all.
    ///
    /// # Errors
    ///
    /// Where the switch, the lease store or the queue could not say. The lease is free then; if the
    /// job is in the queue all the same, its worker obtains the lease anew.
    ///
    /// # Cancel safety
    ///
    /// Safe: once the lease is obtained, a task goes on to the end.
    pub async fn schedule_job(&self) -> Result<Scheduled, ExportError> {
        if !self.is_enabled().await? {
            return Ok(Scheduled::Disabled);
        }
        let lease = match self.locker.obtain(&self.key).await.map_err(ExportError::Lease)? {
            Attempt::Obtained(lease) => lease,
            Attempt::Held(holder) => return Ok(Scheduled::Held(self.held_elsewhere(holder)?)),
        };
        let exporter = self.clone();
        // A hand-over that is dropped on its way would keep the key for nobody.
        match tokio::spawn(async move { exporter.enqueue(lease).await }).await {
            Ok(scheduled) => scheduled,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends, and whoever awaits this with it.
                Err(_cancelled) => std::future::pending().await,
            },
        }
    }

    /// Refuses a key that is held by the job in whose body this runs: it would be held each time.
    fn held_elsewhere(&self, holder: Holder) -> Result<Holder, ExportError> {
        let is_own = |grant: Grant| grant.key == self.key && grant.token == holder.token;
        if current_grant().is_some_and(is_own) {
            return Err(ExportError::KeyOfJob { key: self.key.clone() });
        }
        Ok(holder)
    }

    async fn enqueue(&self, lease: Lease) -> Result<Scheduled, ExportError> {
        let handed = match lease.hand_over(Ttl::clamped(self.hand_over_wait)).await {
            Ok(Handed::Over(handed)) => handed,
            Ok(Handed::AlreadyLost(cause)) => return Ok(Scheduled::Lost(cause)),
            Err(error) => return Err(ExportError::Lease(error)),
        };
        let job = ExportJob::new(handed.clone());
        match self.parts.queue.replace(&job.to_string()).await {
            Ok(id) => {
                info!(key = %self.key, %id, token = %handed.token(), "export job enqueued");
                Ok(Scheduled::Enqueued(id))
            }
            Err(error) => {
                // Also if the job is in the queue and we do not know: adopted, it is nobody's.
                self.job_finished(handed).await?;
                Err(error.into())
            }
        }
    }

    /// Frees the lease of a job that is not to be run, if it still is the job's: never somebody
    /// else's.
    ///
    /// # Errors
    ///
    /// Where the lease store could not say: the key is free at the latest when the job's time in
    /// the queue is over.
    pub async fn job_finished(&self, handed: HandOver) -> Result<JobFinished, ExportError> {
        match self.locker.resume(handed).await.map_err(ExportError::Lease)? {
            Some(lease) => match lease.release().await.map_err(ExportError::Lease)? {
                Released::Freed => Ok(JobFinished::Freed),
                Released::AlreadyLost(_) => Ok(JobFinished::NotOurs),
            },
            None => Ok(JobFinished::NotOurs),
        }
    }

    /// Sends up to `limit` of the oldest pending events, or all that are pending now, and waits for
    /// that; answers how many the sink has taken: 0 where export is not enabled, or the lease is
    /// held. [`flush`](Self::flush) says which. An event that fits into no record does not count
    /// towards `limit`.
    ///
    /// # Errors
    ///
    /// Where the switch, the lease store or the buffer could not say, or the lease was lost. That
    /// the sink fails is no error: its events stay pending.
    ///
    /// # Cancel safety
    ///
    /// Safe: the lease is released. What was on its way to the sink stays pending, and is sent
    /// again.
    pub async fn flush_pending_events(&self, limit: Option<u64>) -> Result<u64, ExportError> {
        match self.flush(limit).await? {
            Flushed::Done(exported) => Ok(exported.sent),
            Flushed::Disabled | Flushed::Held(_) => Ok(0),
        }
    }

    /// [`flush_pending_events`](Self::flush_pending_events), with all that happened.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn flush(&self, limit: Option<u64>) -> Result<Flushed, ExportError> {
        if !self.is_enabled().await? {
            return Ok(Flushed::Disabled);
        }
        match self.locker.obtain(&self.key).await.map_err(ExportError::Lease)? {
            Attempt::Obtained(lease) => {
                let token = lease.token();
                let exported =
                    self.export_under(lease, Sending::new(self, token).send_pending(limit)).await?;
                Ok(Flushed::Done(exported))
            }
            Attempt::Held(holder) => Ok(Flushed::Held(self.held_elsewhere(holder)?)),
        }
    }

    /// Runs `work` while the lease is held, and frees it on every way out; where this is dropped or
    /// panics, by dropping it.
    pub(crate) async fn under<T>(
        &self,
        lease: Lease,
        work: impl Future<Output = Result<T, ExportError>>,
    ) -> Result<T, ExportError> {
        let token = lease.token();
        let ended = lease.run_until_lost(work).await;
        if let Err(error) = lease.release().await {
            let error: &StoreError = &error;
            warn!(key = %self.key, %token, error = error as &dyn std::error::Error, "lease not released");
        }
        ended.map_err(ExportError::Lost)?
    }

    /// Exports [under](Self::under) the lease, and tells what came of it.
    pub(crate) async fn export_under(
        &self,
        lease: Lease,
        work: impl Future<Output = Result<Exported, ExportError>>,
    ) -> Result<Exported, ExportError> {
        let (token, began) = (lease.token(), self.clock.now());
        let exported = self.under(lease, work).await?;
        info!(
            key = %self.key,
            %token,
            sent = exported.sent,
            failed = exported.failed,
            too_large = exported.too_large,
            refused = exported.refused,
            given_up = exported.given_up,
            buried = exported.buried,
            set_aside = exported.set_aside,
            collected = exported.collected,
            filtered = exported.filtered,
            bad = exported.bad,
            runtime = ?self.clock.now().since(began),
            "exported"
        );
        Ok(exported)
    }

    /// What a job does: collects from the buckets, then sends all, if it is enough.
    pub(crate) async fn collect_and_send(
        &self,
        token: FencingToken,
    ) -> Result<Exported, ExportError> {
        let mut poured = Poured::default();
        if let Some(source) = &self.source {
            let answer = source.pour(token, &*self.parts.buffer).await;
            poured = ExportError::unless_overtaken(token, answer)?;
            if let Some(error) = &poured.error {
                let (key, cause): (_, &(dyn std::error::Error + 'static)) = (&self.key, error);
                warn!(%key, %token, error = cause, "not all was collected; what is pending is sent");
            }
        }
        let exported = if self.parts.buffer.pending().await? >= self.least().await? {
            Sending::new(self, token).send_pending(None).await?
        } else {
            Exported::default()
        };
        let Poured { events: collected, filtered, bad, error: source_error } = poured;
        Ok(Exported { collected, filtered, bad, source_error, ..exported })
    }

    /// From how many pending events on a job sends.
    async fn least(&self) -> Result<u64, ExportError> {
        let buffer = &self.parts.buffer;
        let mut is_open = buffer.state().await?.intake == Intake::Open;
        if let Some(source) = &self.source {
            // Buckets that cannot say keep nothing waiting for what they might have.
            is_open &= matches!(source.buckets().intake().await, Ok(Intake::Open));
        }
        // Where nothing more comes in, there are never going to be enough.
        let least = if is_open { self.least_per_job.min(buffer.capacity().events()) } else { 1 };
        Ok(least.max(1))
    }
}
