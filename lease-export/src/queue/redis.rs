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
/// `jobs:{NAME}:ready` is the list of those that wait, `…:hidden` a sorted set of those that were
/// taken, by when their visibility ends, `…:job` a hash of what they are. All time is the server's.
/// A job is in the list or in the set from the call that enqueued it to the one that finished it.
#[derive(Debug, Clone)]
pub struct RedisQueue {
    link: RedisLink,
    visibility: Duration,
    keys: [String; 3],
}

impl RedisQueue {
    /// The queue `name`, whose jobs are out of sight for `visibility` once they are taken, in whole
    /// milliseconds. Who shares it says the same.
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
                // Whoever takes it removes it: an error would bring it again for ever.
                let body = String::from_utf8_lossy(error.as_bytes()).into_owned();
                warn!(id, body, "a job that is no text: what cannot be read is replaced");
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

    /// Asks at once, then every 100 ms, and once more when `patience` is over. That counts the pauses
    /// alone: a request that was made is waited for, since its answer may be a job.
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
