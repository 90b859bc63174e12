//! The exporter: one process at a time sends what is pending.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    Attempt, BootClock, Clock, FencingToken, HandOver, Handed, Holder, InvalidInput, Lease,
    LeaseKey, LeaseOptions, Locker, LossCause, Released, StoreError,
};
use tracing::{info, warn};

use crate::error::ServiceError;
use crate::export::batch::{Batch, Packed, Packer, Record};
use crate::export::bucket::BucketStore;
use crate::export::buffer::{EventBuffer, Fenced, Most, Pending};
use crate::export::dead_letters::DeadLetters;
use crate::export::error::ExportError;
use crate::export::job::ExportJob;
use crate::export::pipeline::BucketSource;
use crate::export::sink::{Retries, Sink, deliver};
use crate::queue::{JobId, JobQueue};
use crate::switch::Switch;

/// Sends pending events to a sink, one exporter at a time, each event at least once.
///
/// Whoever exports holds the lease, from before the first event is read until after the last one was
/// removed; the buffer refuses whoever was overtaken. Events are removed after the sink has taken
/// them, so a crash at any step loses none, and repeats some, under the same ids. Two ways lead to
/// an export: [`flush_pending_events`](Self::flush_pending_events), at once, and
/// [`schedule_job`](Self::schedule_job), which leaves it to a worker: whoever calls
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
/// use lease_scheduler::TableSwitch;
/// use lease_scheduler::export::{
///     Capacity, Event, EventBuffer, Exporter, Limits, MemoryBuffer, MemorySink, Parts,
/// };
/// use lease_scheduler::queue::MemoryQueue;
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
    dead_letters: Option<Arc<dyn DeadLetters>>,
    retries: Retries,
    least_per_job: u64,
    events_at_once: usize,
    hand_over_wait: Duration,
    clock: BootClock,
}

/// What an exporter is made of.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "whoever makes an exporter names all of them")]
pub struct Parts {
    /// Whether anything is exported at all.
    pub switch: Arc<dyn Switch>,
    /// How jobs come to workers.
    pub queue: Arc<dyn JobQueue>,
    /// Where events wait.
    pub buffer: Arc<dyn EventBuffer>,
    /// Where they go.
    pub sink: Arc<dyn Sink>,
}

/// What became of scheduling a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "whether a job was enqueued is the answer"]
#[non_exhaustive]
pub enum Scheduled {
    /// A job is in the queue, and the lease with it.
    Enqueued(JobId),
    /// Export is not enabled.
    Disabled,
    /// Somebody exports, or a job waits already.
    Held(Holder),
    /// The lease was lost before the job could be enqueued.
    Lost(LossCause),
}

/// What became of a flush.
#[derive(Debug)]
#[must_use = "whether anything was sent is the answer"]
#[non_exhaustive]
pub enum Flushed {
    /// This was sent.
    Done(Exported),
    /// Export is not enabled.
    Disabled,
    /// Somebody else exports.
    Held(Holder),
}

/// What an export did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Exported {
    /// How many events the sink has taken, and are pending no more.
    pub sent: u64,
    /// How many events the sink has not taken, and stay pending.
    pub failed: u64,
    /// How many events fit into no record of the sink.
    pub too_large: u64,
    /// How many of those were buried, and are pending no more.
    pub buried: u64,
    /// How many events came from buckets.
    pub collected: u64,
    /// How many entries of buckets were no events.
    pub bad: u64,
    /// What the sink said last, where a request failed as a whole.
    pub sink_error: Option<ServiceError>,
}

/// What became of a job that was not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the lease was the job's or it was not")]
pub enum JobFinished {
    /// The lease was the job's, and is free.
    Freed,
    /// The lease is not the job's any more: nothing was changed.
    NotOurs,
}

impl Exporter {
    /// An exporter of `parts`, under the lease `key`.
    ///
    /// Give all processes the same `key`. How long the lease lasts without a heartbeat, and so how
    /// long nothing is exported after a crash, is the `locker`'s option.
    pub fn new(locker: Locker, key: LeaseKey, parts: Parts) -> Self {
        Self {
            locker,
            key,
            parts,
            source: None,
            dead_letters: None,
            retries: Retries::default(),
            least_per_job: 1,
            events_at_once: 5_000,
            hand_over_wait: Duration::from_secs(6 * 60),
            clock: BootClock::new(),
        }
    }

    /// Pours closed buckets into the buffer at the beginning of each job.
    #[must_use]
    pub fn with_source(mut self, source: BucketSource) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Buries events that fit into no record. By default they stay pending, and are stepped over:
    /// so none is lost before somebody has said where to.
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

    /// Lets a job send nothing where fewer than `events` are pending; a flush always sends. By
    /// default 1. The earlier exporter waited for a whole record of 1,000.
    #[must_use]
    pub fn with_least_per_job(mut self, events: u64) -> Self {
        self.least_per_job = events;
        self
    }

    /// Reads up to `events` events at once, 1 or more, and up to about as many bytes as a batch
    /// has. By default 5,000. It is what bounds memory.
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
            Attempt::Held(holder) => return Ok(Scheduled::Held(holder)),
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

    async fn enqueue(&self, lease: Lease) -> Result<Scheduled, ExportError> {
        let handed = match lease.hand_over(self.hand_over_wait).await {
            Ok(Handed::Over(handed)) => handed,
            Ok(Handed::AlreadyLost(cause)) => return Ok(Scheduled::Lost(cause)),
            Err(error) => return Err(ExportError::Lease(error)),
        };
        let job = ExportJob::new(handed.clone());
        match self.parts.queue.enqueue(&job.to_string()).await {
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
    /// held. [`flush`](Self::flush) says which.
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
                let exported = self.under(lease, self.send_pending(token, limit)).await?;
                Ok(Flushed::Done(exported))
            }
            Attempt::Held(holder) => Ok(Flushed::Held(holder)),
        }
    }

    /// Runs `work` while the lease is held, and frees it on every way out; where this is dropped or
    /// panics, by dropping it.
    pub(crate) async fn under(
        &self,
        lease: Lease,
        work: impl Future<Output = Result<Exported, ExportError>>,
    ) -> Result<Exported, ExportError> {
        let (token, began) = (lease.token(), self.clock.now());
        let ended = lease.run_until_lost(work).await;
        if let Err(error) = lease.release().await {
            let error: &StoreError = &error;
            warn!(key = %self.key, %token, error = error as &dyn std::error::Error, "lease not released");
        }
        let exported = ended.map_err(ExportError::Lost)??;
        info!(
            key = %self.key,
            %token,
            sent = exported.sent,
            failed = exported.failed,
            too_large = exported.too_large,
            buried = exported.buried,
            collected = exported.collected,
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
        let (mut collected, mut bad) = (0, 0);
        if let Some(source) = &self.source {
            let poured = source.pour(token, &*self.parts.buffer).await?;
            let poured = standing(token, poured)?;
            (collected, bad) = (poured.events, poured.bad);
        }
        let pending = self.parts.buffer.pending().await?;
        let exported = if pending >= self.least_per_job.max(1) {
            self.send_pending(token, Some(pending)).await?
        } else {
            Exported::default()
        };
        Ok(Exported { collected, bad, ..exported })
    }

    /// Reads a piece, packs it, sends what is full, removes what was taken, and goes on.
    async fn send_pending(
        &self,
        token: FencingToken,
        limit: Option<u64>,
    ) -> Result<Exported, ExportError> {
        // What is appended meanwhile is the next run's: otherwise this might never end.
        let mut left = match limit {
            Some(limit) => limit,
            None => self.parts.buffer.pending().await?,
        };
        let limits = self.parts.sink.limits();
        let mut packer = Packer::new(limits);
        let mut sending = Sending { token, exported: Exported::default(), in_vain: 0 };
        let mut after = None;
        while left > 0 {
            let events = usize::try_from(left).unwrap_or(usize::MAX).min(self.events_at_once);
            let most = Most::new(events, limits.batch_bytes());
            let read = self.parts.buffer.read(token, after, most).await?;
            let read = standing(token, read)?;
            let Some(last) = read.last() else { break };
            after = Some(last.position());
            left = left.saturating_sub(read.len() as u64);
            for pending in read {
                match packer.push(pending) {
                    Packed::Kept => (),
                    Packed::Full(batch) => self.send(batch, &mut sending).await?,
                    Packed::TooLarge(pending) => self.bury(pending, &mut sending).await?,
                }
                if sending.in_vain == BATCHES_IN_VAIN {
                    return Ok(sending.exported);
                }
            }
        }
        if let Some(batch) = packer.finish() {
            self.send(batch, &mut sending).await?;
        }
        Ok(sending.exported)
    }

    async fn send(&self, batch: Batch, sending: &mut Sending) -> Result<(), ExportError> {
        let token = sending.token;
        let delivered = deliver(&*self.parts.sink, token, batch, self.retries).await;
        let taken: Vec<_> = delivered.taken.iter().flat_map(Record::positions).collect();
        if !taken.is_empty() {
            standing(token, self.parts.buffer.remove(token, &taken).await?)?;
        }
        let failed = delivered.failed.iter().map(|record| record.positions().count() as u64);
        let exported = &mut sending.exported;
        exported.sent += taken.len() as u64;
        exported.failed += failed.sum::<u64>();
        sending.in_vain = if taken.is_empty() { sending.in_vain + 1 } else { 0 };
        if let Some(error) = delivered.error {
            let cause: &(dyn std::error::Error + 'static) = &error;
            warn!(key = %self.key, %token, error = cause, "a request to the sink failed");
            exported.sink_error = Some(error);
        }
        Ok(())
    }

    async fn bury(&self, pending: Pending, sending: &mut Sending) -> Result<(), ExportError> {
        let (token, event) = (sending.token, pending.event());
        sending.exported.too_large += 1;
        let Some(dead_letters) = &self.dead_letters else {
            warn!(key = %self.key, id = %event.id(), bytes = event.line().len(), "event fits into no record, stays pending");
            return Ok(());
        };
        if let Err(error) = dead_letters.bury(event).await {
            // It stays where it is, and does not hold up the rest.
            let cause: &(dyn std::error::Error + 'static) = &error;
            warn!(key = %self.key, id = %event.id(), error = cause, "event not buried, stays pending");
            return Ok(());
        }
        let removed = self.parts.buffer.remove(token, &[pending.position()]).await?;
        standing(token, removed)?;
        sending.exported.buried += 1;
        Ok(())
    }
}

/// An export on its way.
struct Sending {
    token: FencingToken,
    exported: Exported,
    /// Batches in a row of which the sink took nothing.
    in_vain: u32,
}

fn standing<T>(token: FencingToken, answer: Fenced<T>) -> Result<T, ExportError> {
    match answer {
        Fenced::Done(done) => Ok(done),
        Fenced::Stale { largest } => Err(ExportError::Overtaken { token, largest }),
    }
}

/// After so many batches in a row of which it took nothing, each retried, the sink is given up until
/// the next run. One that it refuses for ever does not hold up those behind it.
const BATCHES_IN_VAIN: u32 = 3;
