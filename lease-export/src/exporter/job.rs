//! Export jobs, and the workers that run them.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use lease_core::{Attempt, HandOver, Holder, Lease, LeaseKey};
use serde::{Deserialize, Serialize};
use tokio::select;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::error::sentence;
use crate::exporter::Exporter;
use crate::exporter::error::ExportError;
use crate::exporter::exported::Exported;
use crate::queue::{Delivery, JobId};

/// The queue has jobs as JSON that an operator can read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ExportJob {
    hand_over: HandOver,
}

impl ExportJob {
    pub(crate) fn new(hand_over: HandOver) -> Self {
        Self { hand_over }
    }
}

impl fmt::Display for ExportJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_unwritable| fmt::Error)?)
    }
}

/// The result of [`run_next_job`](Exporter::run_next_job).
#[derive(Debug)]
#[must_use = "the value says whether a job ran"]
#[non_exhaustive]
pub enum Worked {
    /// The queue had no job.
    Idle,
    /// The job has run.
    Done(JobId, Exported),
    /// Another process exports. The job is back in the queue.
    Returned(JobId, Holder),
    /// Export is disabled. The job was removed, and its lease released.
    Disabled(JobId),
    /// The queue had an entry that is not an export job. The worker removed the entry and logged
    /// its text.
    Unreadable(JobId),
    /// The job belongs to an exporter with another key, and is back in the queue.
    Foreign(JobId, LeaseKey),
}

impl fmt::Display for Worked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("no job in the queue"),
            Self::Done(id, exported) => {
                write!(f, "job {id}: {} events sent", exported.sent)?;
                match &exported.source_error {
                    Some(error) => write!(f, ", some buckets not collected ({})", sentence(error)),
                    None => Ok(()),
                }
            }
            Self::Returned(id, holder) => {
                write!(f, "job {id} returned to the queue: {} holds the lease", holder.lessee)
            }
            Self::Disabled(id) => write!(f, "job {id} removed: export is disabled"),
            Self::Unreadable(id) => write!(f, "job {id} removed: not readable"),
            Self::Foreign(id, key) => {
                write!(f, "job {id} returned to the queue: it belongs to exporter {key}")
            }
        }
    }
}

impl Exporter {
    /// Takes a job from the queue, waiting up to `patience` for one, and runs the job to its end.
    ///
    /// The worker adopts the job's lease. If the lease was adopted before or has expired, the
    /// worker obtains the lease anew. If another process holds the lease, the job returns to the
    /// end of the queue for 1 s. This delay doubles each time, up to 30 s. While the job runs, the
    /// worker extends the job's visibility and the lease.
    ///
    /// # Errors
    ///
    /// Fails as [`flush_pending_events`](Self::flush_pending_events) does, and if the queue did not
    /// answer. After an error, the queue delivers the job again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lease is released, and the queue delivers the job again after its
    /// visibility has ended.
    pub async fn run_next_job(&self, patience: Duration) -> Result<Worked, ExportError> {
        let Some(delivery) = self.parts.queue.take(patience).await? else {
            self.measure_backlog_while_idle().await;
            return Ok(Worked::Idle);
        };
        let id = delivery.id();
        let job = match serde_json::from_str::<ExportJob>(delivery.body()) {
            Ok(job) => job,
            Err(error) => {
                warn!(%id, body = delivery.body(), %error, "queue entry is not an export job, removed");
                self.parts.queue.finish(&delivery).await?;
                return Ok(Worked::Unreadable(id));
            }
        };
        if job.hand_over.key() != &self.key {
            let of = job.hand_over.key().clone();
            warn!(key = %self.key, %id, %of, "job of another exporter: use one queue per exporter");
            self.parts.queue.give_back(&delivery, returned_for(&delivery)).await?;
            return Ok(Worked::Foreign(id, of));
        }
        let worked = self.work_on(&delivery, job).await;
        if worked.is_err()
            && let Err(error) = self.parts.queue.give_back(&delivery, returned_for(&delivery)).await
        {
            let cause: &(dyn std::error::Error + 'static) = &error;
            warn!(%id, error = cause, "job not returned: the queue delivers it again after its visibility");
        }
        self.measure_backlog_after_export().await;
        worked
    }

    async fn work_on(&self, delivery: &Delivery, job: ExportJob) -> Result<Worked, ExportError> {
        let (id, queue) = (delivery.id(), &self.parts.queue);
        if !self.is_enabled().await? {
            self.job_finished(job.hand_over).await?;
            queue.finish(delivery).await?;
            return Ok(Worked::Disabled(id));
        }
        let lease = match self.lease_of(job).await? {
            Attempt::Obtained(lease) => lease,
            Attempt::Held(holder) => {
                queue.give_back(delivery, returned_for(delivery)).await?;
                return Ok(Worked::Returned(id, holder));
            }
        };
        info!(
            key = %self.key, %id, token = %lease.token(), delivery = delivery.number(),
            queued = ?delivery.waited(), "export job started"
        );
        let exported = self.export_keeping(delivery, lease).await?;
        // The job is finished last: a failure makes the job run twice, which is harmless.
        queue.finish(delivery).await?;
        Ok(Worked::Done(id, exported))
    }

    async fn lease_of(&self, job: ExportJob) -> Result<Attempt, ExportError> {
        match self.locker.resume(job.hand_over).await.map_err(ExportError::Lease)? {
            Some(lease) => Ok(Attempt::Obtained(lease)),
            None => self.locker.obtain(&self.key).await.map_err(ExportError::Lease),
        }
    }

    async fn export_keeping(
        &self,
        delivery: &Delivery,
        lease: Lease,
    ) -> Result<Exported, ExportError> {
        let queue = &self.parts.queue;
        let period = (queue.visibility() / 3).max(Duration::from_millis(10));
        let mut export = pin!(self.export_under(lease, |token| self.collect_and_send(token)));
        loop {
            select! {
                // Polls the export first, since the export may have ended.
                biased;
                exported = &mut export => return exported,
                () = sleep(period) => (),
            }
            select! {
                biased;
                exported = &mut export => return exported,
                kept = queue.keep(delivery) => {
                    // If another worker has the job now, that worker finds the lease held.
                    if !matches!(kept, Ok(true)) {
                        warn!(id = %delivery.id(), "job visibility not extended");
                    }
                }
            }
        }
    }

    /// Runs jobs one after the other until `stop` is cancelled, then ends the current job within
    /// the [grace](Self::with_stop_grace). A pause follows each error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the current job's lease is released, and the queue delivers the job again after
    /// its visibility has ended.
    pub async fn run_jobs(&self, stop: &CancellationToken) {
        let grace_is_over = async {
            stop.cancelled().await;
            sleep(self.stop_grace).await;
        };
        select! {
            biased;
            () = self.run_jobs_until(stop) => (),
            () = grace_is_over => {
                let (key, grace) = (&self.key, self.stop_grace);
                warn!(%key, ?grace, "export job dropped: grace exceeded");
            }
        }
    }

    async fn run_jobs_until(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            // A stop does not drop this call, since a job that the call has just taken would stay
            // invisible.
            match self.run_next_job(TAKE_FOR).await {
                Ok(Worked::Idle) => (),
                Ok(worked) => info!(key = %self.key, "{worked}"),
                Err(error) => {
                    tell_failure(&self.key, &error);
                    select! {
                        biased;
                        () = stop.cancelled() => (),
                        () = sleep(SHORTEST_RETURN) => (),
                    }
                }
            }
        }
    }
}

fn tell_failure(key: &LeaseKey, error: &ExportError) {
    let cause: &(dyn std::error::Error + 'static) = error;
    warn!(%key, error = cause, "export job failed");
}

/// The delay doubles each time, so a job whose lease is held for an hour is tried twice a minute.
fn returned_for(delivery: &Delivery) -> Duration {
    let times = u32::try_from(delivery.number()).unwrap_or(u32::MAX).clamp(1, 6);
    (SHORTEST_RETURN * 2_u32.pow(times - 1)).min(LONGEST_RETURN)
}

const SHORTEST_RETURN: Duration = Duration::from_secs(1);

const LONGEST_RETURN: Duration = Duration::from_secs(30);

/// A worker checks `stop` this often while the queue is empty.
const TAKE_FOR: Duration = Duration::from_secs(1);
