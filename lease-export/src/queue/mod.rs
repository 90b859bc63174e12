//! Jobs on their way to a worker: none is lost with the worker that took it.

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

/// Carries jobs from whoever schedules them to whoever works on them.
///
/// A job that was taken is out of sight for a while, the queue's *visibility*. Its worker
/// [keeps](Self::keep) it for as long as it is at work, and [finishes](Self::finish) it. Where the
/// worker died instead, the job is delivered once more, and that is counted: so every job is worked
/// on at least once, and a job has to bear being worked on twice.
///
/// # To ensure correctness
///
/// Each call is one atomic step. Only the last delivery of a job finishes it, keeps it, or gives it
/// back: an earlier one, whose time was over, changes nothing. Time is measured where the jobs are
/// kept.
#[async_trait]
pub trait JobQueue: fmt::Debug + Send + Sync + 'static {
    /// Puts a job with `body` at the end.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown: the job may be in the queue.
    async fn enqueue(&self, body: &str) -> Result<JobId, ServiceError>;

    /// Puts a job with `body` into the queue in place of all that nobody has: those that wait, and
    /// those whose worker's time is over. Whoever needs one job, however often it is asked for, has
    /// one.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown: either the job is in the queue, or the others still are.
    async fn replace(&self, body: &str) -> Result<JobId, ServiceError>;

    /// Takes the job at the front; waits up to `patience` for one. A job that comes again, since it
    /// was given back or its worker died, is at the end: one that nobody can work on yet does not
    /// keep back the others.
    ///
    /// # Errors
    ///
    /// Where the queue could not say.
    ///
    /// # Cancel safety
    ///
    /// A job that was taken for nobody is delivered again once its visibility is over.
    async fn take(&self, patience: Duration) -> Result<Option<Delivery>, ServiceError>;

    /// Keeps a job that was taken out of sight for another visibility; says whether this was still
    /// its last delivery.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn keep(&self, delivery: &Delivery) -> Result<bool, ServiceError>;

    /// Removes a job that was taken; says whether this was still its last delivery.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn finish(&self, delivery: &Delivery) -> Result<bool, ServiceError>;

    /// Returns a job that was taken, to be delivered again after `delay`; says whether this was
    /// still its last delivery.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn give_back(&self, delivery: &Delivery, delay: Duration) -> Result<bool, ServiceError>;

    /// How many jobs there are, those that were taken included.
    ///
    /// # Errors
    ///
    /// Where the queue could not say.
    async fn count(&self) -> Result<u64, ServiceError>;

    /// For how long a job that was taken is out of sight.
    fn visibility(&self) -> Duration;
}

/// Names a job within its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// A job in a worker's hands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a job that is neither finished nor given back is delivered again"]
pub struct Delivery {
    pub(crate) id: JobId,
    pub(crate) body: String,
    pub(crate) number: u64,
    pub(crate) waited: Duration,
}

impl JobId {
    /// The id with this number: for those who write queues.
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
    /// A delivery, the `number`th of its job, `waited` after it was enqueued: for those who write
    /// queues.
    pub fn new(id: JobId, body: String, number: u64, waited: Duration) -> Self {
        Self { id, body, number, waited }
    }

    /// Which job it is.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// What was enqueued.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// How often the job was delivered, this time included: 1 where no worker has had it before.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How long ago the job was enqueued.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

// A forwarded trait must not fall back to a default by accident.
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
