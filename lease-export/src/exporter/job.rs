//! Jobs of the exporter, and those who work on them.

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

/// What is in the queue: JSON, for people to read.
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

/// What a worker did.
#[derive(Debug)]
#[must_use = "what became of a job is the answer"]
#[non_exhaustive]
pub enum Worked {
    /// No job came.
    Idle,
    /// A job was done.
    Done(JobId, Exported),
    /// Somebody else exports: the job is back in the queue.
    Returned(JobId, Holder),
    /// Export was disabled meanwhile: the job was removed, and its lease freed.
    Disabled(JobId),
    /// What was in the queue is no job of an exporter's: it was removed, and its text reported.
    Unreadable(JobId),
    /// The job is of an exporter with another key: it is back in the queue.
    Foreign(JobId, LeaseKey),
}

impl fmt::Display for Worked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("no job came"),
            Self::Done(id, exported) => {
                write!(f, "job {id}: {} events have been sent", exported.sent)?;
                match &exported.source_error {
                    Some(error) => write!(f, ", but not all was collected ({})", sentence(error)),
                    None => Ok(()),
                }
            }
            Self::Returned(id, holder) => {
                write!(f, "job {id} is back in the queue: {} exports", holder.lessee)
            }
            Self::Disabled(id) => write!(f, "job {id} was not run: export is disabled"),
            Self::Unreadable(id) => write!(f, "job {id} cannot be read"),
            Self::Foreign(id, key) => {
                write!(f, "job {id} is back in the queue: it is of the exporter {key}")
            }
        }
    }
}

impl Exporter {
    /// Takes a job from the queue, waiting up to `patience` for one, and works on it to its end.
    ///
    /// The job's lease is taken up, as can be done once. Where it was before, or has run out, the
    /// lease is obtained anew; while somebody else holds it, the job goes back to the end of the
    /// queue, to come again after 1 s, and after twice as long each time, 30 s at most. While it
    /// works, the job is kept out of sight, and the lease is kept alive.
    ///
    /// # Errors
    ///
    /// As [`flush_pending_events`](Self::flush_pending_events), and where the queue could not say.
    /// The job is delivered again.
    ///
    /// # Cancel safety
    ///
    /// Safe: the lease is released, and the job is delivered again when its visibility is over.
    pub async fn run_next_job(&self, patience: Duration) -> Result<Worked, ExportError> {
        let Some(delivery) = self.parts.queue.take(patience).await? else {
            return Ok(Worked::Idle);
        };
        let id = delivery.id();
        let job = match serde_json::from_str::<ExportJob>(delivery.body()) {
            Ok(job) => job,
            Err(error) => {
                warn!(%id, body = delivery.body(), %error, "no job of an exporter: removed");
                self.parts.queue.finish(&delivery).await?;
                return Ok(Worked::Unreadable(id));
            }
        };
        if job.hand_over.key() != &self.key {
            let of = job.hand_over.key().clone();
            warn!(key = %self.key, %id, %of, "job of another exporter: each needs a queue of its own");
            self.parts.queue.give_back(&delivery, returned_for(&delivery)).await?;
            return Ok(Worked::Foreign(id, of));
        }
        let worked = self.work_on(&delivery, job).await;
        if worked.is_err()
            && let Err(error) = self.parts.queue.give_back(&delivery, returned_for(&delivery)).await
        {
            let cause: &(dyn std::error::Error + 'static) = &error;
            warn!(%id, error = cause, "job not given back: it comes again by itself");
        }
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
            queued = ?delivery.waited(), "export job begins"
        );
        let exported = self.keeping(delivery, lease).await?;
        // Last: a job that is delivered again although it was done does no harm.
        queue.finish(delivery).await?;
        Ok(Worked::Done(id, exported))
    }

    async fn lease_of(&self, job: ExportJob) -> Result<Attempt, ExportError> {
        match self.locker.resume(job.hand_over).await.map_err(ExportError::Lease)? {
            Some(lease) => Ok(Attempt::Obtained(lease)),
            None => self.locker.obtain(&self.key).await.map_err(ExportError::Lease),
        }
    }

    /// Exports, and meanwhile keeps the job out of sight.
    async fn keeping(&self, delivery: &Delivery, lease: Lease) -> Result<Exported, ExportError> {
        let (token, queue) = (lease.token(), &self.parts.queue);
        let period = (queue.visibility() / 3).max(Duration::from_millis(10));
        let mut export = pin!(self.export_under(lease, self.collect_and_send(token)));
        loop {
            select! {
                // The work comes first: it may have ended.
                biased;
                exported = &mut export => return exported,
                () = sleep(period) => (),
            }
            select! {
                biased;
                exported = &mut export => return exported,
                kept = queue.keep(delivery) => {
                    // Whoever has the job now finds the lease held.
                    if !matches!(kept, Ok(true)) {
                        warn!(id = %delivery.id(), "job could not be kept out of sight");
                    }
                }
            }
        }
    }

    /// Works on jobs, one after the other, until `stop` is cancelled, and then to the end of the
    /// one at hand, for the [grace](Self::with_stop_grace) at most. Errors are logged, and followed by a
    /// pause.
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
                warn!(%key, ?grace, "export job dropped: it did not end within the grace");
            }
        }
    }

    async fn run_jobs_until(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            // Not cancelled while it waits: a job that was taken for nobody would be out of sight.
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

/// After how long a job that could not be worked on is delivered again: twice as long each time, so
/// that one whose lease is held for an hour is looked at every half minute, and not all the time.
fn returned_for(delivery: &Delivery) -> Duration {
    let times = u32::try_from(delivery.number()).unwrap_or(u32::MAX).clamp(1, 6);
    (SHORTEST_RETURN * 2_u32.pow(times - 1)).min(LONGEST_RETURN)
}

const SHORTEST_RETURN: Duration = Duration::from_secs(1);

const LONGEST_RETURN: Duration = Duration::from_secs(30);

/// For how long a worker waits for a job before it looks whether it is to stop.
const TAKE_FOR: Duration = Duration::from_secs(1);
