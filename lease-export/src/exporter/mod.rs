//! The exporter: one process at a time sends pending events.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{BootClock, Clock, Grant, current_grant};
use lease_core::{
    Attempt, FencingToken, HandOver, Handed, Holder, Lease, LeaseKey, Locker, Released, StoreError,
    Switch, Ttl,
};
use tracing::{Instrument, info, info_span, warn};

use crate::bucket::BucketStore;
use crate::buffer::EventBuffer;
use crate::collect::{BucketSource, Collected};
use crate::dead_letters::DeadLetters;
use crate::exporter::error::ExportError;
use crate::exporter::exported::{Exported, Flushed, JobFinished, Scheduled};
use crate::exporter::failures::Failures;
use crate::exporter::job::ExportJob;
use crate::exporter::sending::Sending;
use crate::metrics::{OpenExport, Reports};
use crate::partition::Partitioner;
use crate::queue::JobQueue;
use crate::sink::{Retries, Sink};

mod backlog;
mod due;
pub(crate) mod error;
pub(crate) mod exported;
mod failures;
pub(crate) mod job;
pub(crate) mod operator;
mod sending;
mod setup;

/// Sends pending events to a sink, one exporter at a time, each event at least once.
///
/// An export holds the lease from before the first read until after the last removal. The buffer
/// refuses an exporter with an old token. The exporter removes events after the sink has taken
/// them. So a crash at any step loses no event, but may repeat events under the same ids.
///
/// [`flush_pending_events`](Self::flush_pending_events) exports at once.
/// [`schedule_job`](Self::schedule_job) leaves the export to a worker, which calls
/// [`run_next_job`](Self::run_next_job) or [`run_jobs`](Self::run_jobs). Clones share the parts and
/// the counts of failures.
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
    pub(crate) max_failures: u32,
    pub(crate) failures: Arc<Failures>,
    pub(crate) stop_grace: Duration,
    min_per_job: u64,
    max_wait: Duration,
    pub(crate) partitioner: Partitioner,
    pub(crate) events_at_once: usize,
    hand_over_wait: Duration,
    pub(crate) clock: BootClock,
    pub(crate) metrics: Reports,
}

/// The components of an exporter.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "a caller names all of them")]
pub struct Parts {
    /// Enables and disables export, for all processes that share the switch.
    pub switch: Arc<dyn Switch>,
    /// Carries jobs to workers. Each exporter needs its own queue.
    pub queue: Arc<dyn JobQueue>,
    /// Keeps pending events.
    pub buffer: Arc<dyn EventBuffer>,
    /// Receives the events.
    pub sink: Arc<dyn Sink>,
}

impl Exporter {
    /// Makes an exporter of `parts`, which exports under the lease `key`.
    ///
    /// All processes must use the same `key`. No scheduler job may have that name, since a job that
    /// runs the exporter would hold the exporter's lease. After a crash, another process can export
    /// at the latest after the ttl of `locker`.
    pub fn new(locker: Locker, key: LeaseKey, parts: Parts) -> Self {
        Self {
            locker,
            key,
            parts,
            source: None,
            dead_letters: None,
            retries: Retries::default(),
            put_limit: Duration::from_secs(30),
            max_failures: 60,
            failures: Arc::default(),
            stop_grace: Duration::from_secs(30),
            min_per_job: 1,
            max_wait: Duration::from_secs(5 * 60),
            partitioner: Partitioner::default(),
            events_at_once: 5_000,
            hand_over_wait: Duration::from_secs(6 * 60),
            clock: BootClock::new(),
            metrics: Reports::default(),
        }
    }

    /// The key of the exporter's lease.
    pub fn key(&self) -> &LeaseKey {
        &self.key
    }

    /// The buffer to which producers append events.
    pub fn buffer(&self) -> &Arc<dyn EventBuffer> {
        &self.parts.buffer
    }

    /// The buckets into which producers put changes. `None` without a [source](Self::with_source).
    pub fn buckets(&self) -> Option<&Arc<dyn BucketStore>> {
        self.source.as_ref().map(|source| source.buckets())
    }

    /// Enables export for all processes that share the switch.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    ///
    /// # Cancel safety
    ///
    /// The switch may or may not have changed.
    pub async fn enable(&self) -> Result<(), ExportError> {
        self.parts.switch.turn_on().await.map_err(ExportError::Switch)
    }

    /// Disables export. A running export finishes, and no other export starts.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    ///
    /// # Cancel safety
    ///
    /// The switch may or may not have changed.
    pub async fn disable(&self) -> Result<(), ExportError> {
        self.parts.switch.turn_off().await.map_err(ExportError::Switch)
    }

    /// Returns whether export is enabled.
    ///
    /// # Errors
    ///
    /// Fails if the switch did not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn is_enabled(&self) -> Result<bool, ExportError> {
        self.parts.switch.is_on().await.map_err(ExportError::Switch)
    }

    /// Returns the number of pending events, without the lease, also while export is disabled.
    ///
    /// # Errors
    ///
    /// Fails if the buffer did not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn num_pending_events(&self) -> Result<u64, ExportError> {
        Ok(self.parts.buffer.pending().await?)
    }

    /// Schedules an export for a worker. If export is enabled and the lease is free, this enqueues
    /// exactly one job, which carries the lease. Until that job has ended, no other process
    /// schedules or flushes. The job replaces jobs in the queue that no worker has, since one
    /// export sends all pending events.
    ///
    /// # Errors
    ///
    /// Fails if the switch, the lease store or the queue did not answer. The lease is free then. If
    /// the queue has the job after all, its worker obtains the lease anew.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once the lease is obtained, a spawned task finishes the call.
    pub async fn schedule_job(&self) -> Result<Scheduled, ExportError> {
        if !self.is_enabled().await? {
            return Ok(Scheduled::Disabled);
        }
        let lease = match self.locker.obtain(&self.key).await.map_err(ExportError::Lease)? {
            Attempt::Obtained(lease) => lease,
            Attempt::Held(holder) => return Ok(Scheduled::Held(self.held_elsewhere(holder)?)),
        };
        let exporter = self.clone();
        // A dropped hand-over could reserve the key for no process.
        match tokio::spawn(async move { exporter.enqueue(lease).await }).await {
            Ok(scheduled) => scheduled,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down, and also drops this future.
                Err(_cancelled) => std::future::pending().await,
            },
        }
    }

    /// Returns an error if the scheduler job that runs this code holds the key.
    fn held_elsewhere(&self, holder: Holder) -> Result<Holder, ExportError> {
        let is_own = |grant: Grant| grant.key == self.key && holder.holds(&grant);
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
                // If the queue has the job after all, its worker cannot adopt the lease, and
                // obtains the lease anew.
                self.job_finished(handed).await?;
                Err(error.into())
            }
        }
    }

    /// Releases the lease of a job that will not run, if the job still has the lease. Never
    /// releases another holder's lease.
    ///
    /// # Errors
    ///
    /// Fails if the lease store did not answer. The key is free at the latest after the [hand-over
    /// wait](Self::with_hand_over_wait).
    ///
    /// # Cancel safety
    ///
    /// After a dropped call, the lease is released in the background, or stays reserved until the
    /// hand-over expires.
    pub async fn job_finished(&self, handed: HandOver) -> Result<JobFinished, ExportError> {
        match self.locker.resume(handed).await.map_err(ExportError::Lease)? {
            Some(lease) => match lease.release().await.map_err(ExportError::Lease)? {
                Released::Freed => Ok(JobFinished::Freed),
                Released::AlreadyLost(_) => Ok(JobFinished::NotOurs),
            },
            None => Ok(JobFinished::NotOurs),
        }
    }

    /// Sends up to `limit` of the oldest pending events, or all that are pending now. Returns the
    /// number of events that the sink has taken: 0 if export is disabled or the lease is held.
    /// [`flush`](Self::flush) distinguishes these cases. Events larger than a record do not count
    /// towards `limit`.
    ///
    /// # Errors
    ///
    /// Fails if the switch, the lease store or the buffer did not answer, or the lease was lost.
    /// After an error of the sink, the events stay pending, and this call succeeds.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lease is released. Events of the last request stay pending, and the next
    /// export sends them again.
    pub async fn flush_pending_events(&self, limit: Option<u64>) -> Result<u64, ExportError> {
        match self.flush(limit).await? {
            Flushed::Done(exported) => Ok(exported.sent),
            Flushed::Disabled | Flushed::Held(_) => Ok(0),
        }
    }

    /// Exports like [`flush_pending_events`](Self::flush_pending_events), and returns all numbers.
    ///
    /// # Errors
    ///
    /// Fails as [`flush_pending_events`](Self::flush_pending_events) does.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`flush_pending_events`](Self::flush_pending_events) is.
    pub async fn flush(&self, limit: Option<u64>) -> Result<Flushed, ExportError> {
        let flushed = self.export_now(|token| Sending::new(self, token).send_pending(limit)).await;
        self.measure_backlog_after_export().await;
        flushed
    }

    /// Exports at once as a job of the queue does, without the queue: collects closed buckets, and
    /// sends if [enough](Self::with_min_per_job) events are pending, or if the oldest has waited
    /// [long enough](Self::with_max_wait). A program's own scheduler can call this.
    ///
    /// # Errors
    ///
    /// Fails as [`flush_pending_events`](Self::flush_pending_events) does.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`flush_pending_events`](Self::flush_pending_events) is.
    pub async fn export(&self) -> Result<Flushed, ExportError> {
        let exported = self.export_now(|token| self.collect_and_send(token)).await;
        self.measure_backlog_after_export().await;
        exported
    }

    async fn export_now<W>(
        &self,
        work: impl FnOnce(FencingToken) -> W,
    ) -> Result<Flushed, ExportError>
    where
        W: Future<Output = Result<Exported, ExportError>>,
    {
        if !self.is_enabled().await? {
            return Ok(Flushed::Disabled);
        }
        match self.locker.obtain(&self.key).await.map_err(ExportError::Lease)? {
            Attempt::Obtained(lease) => Ok(Flushed::Done(self.export_under(lease, work).await?)),
            Attempt::Held(holder) => Ok(Flushed::Held(self.held_elsewhere(holder)?)),
        }
    }

    /// A drop or a panic of this future drops the lease, and so releases the lease.
    pub(crate) async fn under<T>(
        &self,
        lease: Lease,
        work: impl Future<Output = Result<T, ExportError>>,
    ) -> Result<T, ExportError> {
        let token = lease.token();
        let ended = lease.run_until_lost(work).await;
        if let Err(error) = lease.release().await {
            let error: &StoreError = &error;
            warn!(
                key = %self.key, %token, error = error as &dyn std::error::Error,
                "export lease not released"
            );
        }
        ended.map_err(ExportError::Lost)?
    }

    pub(crate) async fn export_under<W>(
        &self,
        lease: Lease,
        work: impl FnOnce(FencingToken) -> W,
    ) -> Result<Exported, ExportError>
    where
        W: Future<Output = Result<Exported, ExportError>>,
    {
        let (token, began) = (lease.token(), self.clock.now());
        let span =
            info_span!("export", key = %self.key, lessee = %lease.lessee(), token = token.get());
        let open = OpenExport::begin(&self.metrics, &self.clock);
        let exported = open.end(self.under(lease, work(token)).instrument(span).await)?;
        info!(
            key = %self.key,
            %token,
            sent = exported.sent,
            failed = exported.failed,
            too_large = exported.too_large,
            refused = exported.refused,
            given_up = exported.given_up,
            dead_lettered = exported.dead_lettered,
            set_aside = exported.set_aside,
            collected = exported.collected,
            filtered = exported.filtered,
            bad = exported.bad,
            runtime = ?self.clock.now().since(began),
            "exported"
        );
        Ok(exported)
    }

    pub(crate) async fn collect_and_send(
        &self,
        token: FencingToken,
    ) -> Result<Exported, ExportError> {
        let mut collected = Collected::default();
        if let Some(source) = &self.source {
            let answer = source.collect(token, &*self.parts.buffer).await;
            collected = ExportError::unless_overtaken(token, answer)?;
            if let Some(error) = &collected.error {
                let (key, cause): (_, &(dyn std::error::Error + 'static)) = (&self.key, error);
                warn!(%key, %token, error = cause, "some buckets not collected, pending events are sent");
            }
            self.metrics.report(|metrics| metrics.collected(collected.events, collected.bad));
        }
        let exported = if self.is_due().await? {
            Sending::new(self, token).send_pending(None).await?
        } else {
            Exported::default()
        };
        let Collected { events: collected, filtered, bad, error: source_error } = collected;
        Ok(Exported { collected, filtered, bad, source_error, ..exported })
    }
}
