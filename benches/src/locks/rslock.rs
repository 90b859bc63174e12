//! The crate `rslock`, as its README uses it.

use async_trait::async_trait;
use rslock::{LockGuard, LockManager};

use crate::TTL;
use crate::lock::{Held, Lock};

pub(crate) struct Rslock(LockManager);

impl Rslock {
    pub(crate) fn new(urls: &[String]) -> Self {
        Self(LockManager::new(urls.to_vec()))
    }
}

#[async_trait]
impl Lock for Rslock {
    fn name(&self) -> &'static str {
        "rslock 0.10.0"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let guard = self.0.acquire(key, TTL).await.ok()?;
        Some(Box::new(guard))
    }
}

#[async_trait]
impl Held for LockGuard {
    async fn free(self: Box<Self>) {
        self.release().await;
    }
}
