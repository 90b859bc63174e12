//! The crate `redlock`. Its calls block, so each call runs on a blocking thread.

use std::sync::Arc;

use async_trait::async_trait;
use redlock::RedLock;
use tokio::task::spawn_blocking;

use crate::TTL;
use crate::lock::{Held, Lock};

pub(crate) struct Redlock(Arc<RedLock>);

struct RedlockHeld {
    lock: Arc<RedLock>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Redlock {
    pub(crate) fn new(urls: &[String]) -> Self {
        Self(Arc::new(RedLock::new(urls.to_vec())))
    }
}

#[async_trait]
impl Lock for Redlock {
    fn name(&self) -> &'static str {
        "redlock 2.0.0"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let (lock, key) = (Arc::clone(&self.0), key.as_bytes().to_vec());
        let taking = spawn_blocking(move || {
            let millis = usize::try_from(TTL.as_millis()).unwrap();
            let value = loop {
                if let Some(held) = lock.lock(&key, millis).ok()? {
                    break held.val;
                }
            };
            Some(RedlockHeld { lock, key, value })
        });
        let held = taking.await.unwrap()?;
        Some(Box::new(held))
    }
}

#[async_trait]
impl Held for RedlockHeld {
    async fn free(self: Box<Self>) {
        let freeing = spawn_blocking(move || {
            let Self { lock, key, value } = *self;
            lock.unlock(&redlock::Lock {
                lock_manager: &lock,
                resource: key,
                val: value,
                validity_time: 0,
            });
        });
        freeing.await.unwrap();
    }
}
