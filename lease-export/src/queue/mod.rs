//! Job queues: if a worker crashes, the queue delivers its job again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::ServiceError;

mod memory;
#[cfg(feature = "redis")]
mod redis;

pub use memory::MemoryQueue;
#[cfg(feature = "redis")]
pub use redis::RedisQueue;

/// Carries jobs from schedulers to workers.
///
/// A taken job is invisible to other workers for the queue's *visibility*. Its worker
/// [extends](Self::keep) the visibility while the job runs, and then [finishes](Self::finish) the
/// job. If the worker crashes, the queue delivers the job again, and counts the deliveries. So each
/// job runs at least once, and must tolerate running twice.
///
/// # To ensure correctness
///
/// Each call is one atomic step. Only the last delivery of a job can finish, extend or return the
/// job. An earlier delivery changes nothing. The queue's own clock measures time.
///
/// # Cancel safety
///
/// The queue may still apply a dropped call, as after an error.
#[async_trait]
pub trait JobQueue: fmt::Debug + Send + Sync + 'static {
    /// Appends a job with `body`.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown: the queue may have the job.
    async fn enqueue(&self, body: &str) -> Result<JobId, ServiceError>;

    /// Replaces all jobs that no worker has by one job with `body`: waiting jobs, and jobs whose
    /// visibility has ended.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown: the queue has either the new job or the old jobs.
    async fn replace(&self, body: &str) -> Result<JobId, ServiceError>;

    /// Takes the first job, and waits up to `patience` for one. A returned job, or the job of a
    /// crashed worker, is at the end of the queue. So a job that cannot run yet does not block the
    /// others.
    ///
    /// # Errors
    ///
    /// Fails if the queue did not answer.
    ///
    /// # Cancel safety
    ///
    /// After a dropped call, a job that was handed out is delivered again after its visibility has
    /// ended.
    async fn take(&self, patience: Duration) -> Result<Option<Delivery>, ServiceError>;

    /// Hides a job for the queue's visibility, counted from now. Returns whether `delivery` is
    /// still the job's last delivery.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    async fn keep(&self, delivery: &Delivery) -> Result<bool, ServiceError>;

    /// Removes a job that was taken. Returns whether `delivery` was still the job's last delivery.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    async fn finish(&self, delivery: &Delivery) -> Result<bool, ServiceError>;

    /// Returns a taken job, for another delivery after `delay`. The result is whether `delivery`
    /// was still the job's last delivery.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    async fn give_back(&self, delivery: &Delivery, delay: Duration) -> Result<bool, ServiceError>;

    /// Returns the number of jobs, including jobs that were taken.
    ///
    /// # Errors
    ///
    /// Fails if the queue did not answer.
    async fn count(&self) -> Result<u64, ServiceError>;

    /// How long a taken job is invisible to other workers.
    fn visibility(&self) -> Duration;
}

/// Names a job within its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// One delivery of a job to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a job that is neither finished nor given back is delivered again"]
pub struct Delivery {
    pub(crate) id: JobId,
    pub(crate) body: String,
    pub(crate) number: u64,
    pub(crate) waited: Duration,
}

impl JobId {
    /// Makes the id with this number. For implementers of [`JobQueue`].
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The id as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Delivery {
    /// Makes the `number`th delivery of a job, `waited` after the job was enqueued. For
    /// implementers of [`JobQueue`].
    pub fn new(id: JobId, body: String, number: u64, waited: Duration) -> Self {
        Self { id, body, number, waited }
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The body that was enqueued.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// The number of deliveries of this job: 1 at the first delivery.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The time since the job was enqueued.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

// `Arc` forwards every method: a default method must not replace the queue's own method.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<T: JobQueue + ?Sized> JobQueue for Arc<T> {
    async fn enqueue(&self, body: &str) -> Result<JobId, ServiceError> {
        (**self).enqueue(body).await
    }

    async fn replace(&self, body: &str) -> Result<JobId, ServiceError> {
        (**self).replace(body).await
    }

    async fn take(&self, patience: Duration) -> Result<Option<Delivery>, ServiceError> {
        (**self).take(patience).await
    }

    async fn keep(&self, delivery: &Delivery) -> Result<bool, ServiceError> {
        (**self).keep(delivery).await
    }

    async fn finish(&self, delivery: &Delivery) -> Result<bool, ServiceError> {
        (**self).finish(delivery).await
    }

    async fn give_back(&self, delivery: &Delivery, delay: Duration) -> Result<bool, ServiceError> {
        (**self).give_back(delivery, delay).await
    }

    async fn count(&self) -> Result<u64, ServiceError> {
        (**self).count().await
    }

    fn visibility(&self) -> Duration {
        (**self).visibility()
    }
}
