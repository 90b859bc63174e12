//! Jobs in Redis.

use std::time::Duration;

use async_trait::async_trait;
use redis::Script;
use tokio::time::sleep;
use tracing::warn;

use crate::error::ServiceError;
use crate::queue::{Delivery, JobId, JobQueue};
use crate::redis::{RedisLink, key, script};

/// Keeps jobs in Redis, for the workers of many processes.
///
/// `jobs:{NAME}:ready` is the list of waiting jobs. `jobs:{NAME}:hidden` is a sorted set of taken
/// jobs, sorted by the end of their visibility. `jobs:{NAME}:job` is a hash of their contents. All
/// times are of the server's clock.
#[derive(Debug, Clone)]
pub struct RedisQueue {
    link: RedisLink,
    visibility: Duration,
    keys: [String; 3],
}

impl RedisQueue {
    /// Opens the queue `name`. A taken job is invisible for `visibility`, in whole milliseconds.
    /// All processes that share the queue must use the same `visibility`.
    pub fn new(link: RedisLink, name: &str, visibility: Duration) -> Self {
        let keys = ["ready", "hidden", "job"].map(|part| key("jobs", name, part));
        Self { link, visibility, keys }
    }

    async fn run<T: redis::FromRedisValue>(
        &self,
        script: &Script,
        arguments: &[&[u8]],
    ) -> Result<T, ServiceError> {
        let [ready, hidden, job] = &self.keys;
        self.link.run(SERVICE, script, &[ready, hidden, job], arguments).await
    }

    async fn hide(&self, delivery: &Delivery, length: Duration) -> Result<bool, ServiceError> {
        let (id, number) = (delivery.id.to_string(), delivery.number.to_string());
        let length = millis(length);
        self.run(&HIDE, &[id.as_bytes(), number.as_bytes(), length.as_bytes()]).await
    }

    async fn take_now(&self) -> Result<Option<Delivery>, ServiceError> {
        let visibility = millis(self.visibility);
        let taken: Option<(u64, Vec<u8>, u64, u64)> =
            self.run(&TAKE, &[visibility.as_bytes()]).await?;
        Ok(taken.map(|(id, body, number, waited)| {
            let body = String::from_utf8(body).unwrap_or_else(|error| {
                // The worker removes an unreadable job. After an error, the queue would deliver the
                // job again and again.
                let body = String::from_utf8_lossy(error.as_bytes()).into_owned();
                warn!(id, body, "job is not UTF-8, decoded lossily");
                body
            });
            Delivery::new(JobId::new(id), body, number, Duration::from_millis(waited))
        }))
    }
}

#[async_trait]
impl JobQueue for RedisQueue {
    async fn enqueue(&self, body: &str) -> Result<JobId, ServiceError> {
        let id: u64 = self.run(&ENQUEUE, &[body.as_bytes()]).await?;
        Ok(JobId::new(id))
    }

    async fn replace(&self, body: &str) -> Result<JobId, ServiceError> {
        let id: u64 = self.run(&REPLACE, &[body.as_bytes()]).await?;
        Ok(JobId::new(id))
    }

    /// Polls at once, then every 100 ms, and a last time after `patience`. Only the pauses count
    /// towards `patience`: each request is awaited, since its answer may be a job.
    async fn take(&self, patience: Duration) -> Result<Option<Delivery>, ServiceError> {
        let mut left = patience;
        loop {
            if let Some(delivery) = self.take_now().await? {
                return Ok(Some(delivery));
            }
            if left.is_zero() {
                return Ok(None);
            }
            let pause = left.min(POLL);
            sleep(pause).await;
            left -= pause;
        }
    }

    async fn keep(&self, delivery: &Delivery) -> Result<bool, ServiceError> {
        self.hide(delivery, self.visibility).await
    }

    async fn finish(&self, delivery: &Delivery) -> Result<bool, ServiceError> {
        let (id, number) = (delivery.id.to_string(), delivery.number.to_string());
        self.run(&FINISH, &[id.as_bytes(), number.as_bytes()]).await
    }

    async fn give_back(&self, delivery: &Delivery, delay: Duration) -> Result<bool, ServiceError> {
        self.hide(delivery, delay).await
    }

    async fn count(&self) -> Result<u64, ServiceError> {
        self.run(&COUNT, &[]).await
    }

    fn visibility(&self) -> Duration {
        self.visibility
    }
}

fn millis(length: Duration) -> String {
    length.as_millis().to_string()
}

script!(ENQUEUE "scripts/enqueue.lua");
script!(REPLACE "scripts/replace.lua");
script!(TAKE "scripts/take.lua");
script!(HIDE "scripts/hide.lua");
script!(COUNT "scripts/count.lua");
script!(FINISH "scripts/finish.lua");

const SERVICE: &str = "job queue";

const POLL: Duration = Duration::from_millis(100);
