//! This library's scripts on one Redis, called directly. The difference from the store is the client's
//! cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::TTL;
use crate::lock::{Held, Lock};

#[derive(Clone)]
pub(crate) struct SameScripts {
    connection: MultiplexedConnection,
    obtain: Arc<Script>,
    release: Arc<Script>,
}

struct SameScriptsHeld {
    lock: SameScripts,
    key: String,
    nonce: String,
    token: u64,
}

impl SameScripts {
    pub(crate) async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let script = |name| Arc::new(Script::new(lease_redis::script(name).unwrap()));
        let (obtain, release) = (script("obtain"), script("release"));
        obtain.load_async(&mut connection).await.unwrap();
        release.load_async(&mut connection).await.unwrap();
        Self { connection, obtain, release }
    }
}

#[async_trait]
impl Lock for SameScripts {
    fn name(&self) -> &'static str {
        "the same scripts, bare"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let key = format!("bare:{{{key}}}");
        let nonce = format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut call = self.obtain.key(&key);
        call.key(format!("{key}:attributes"));
        // Only quorums use a round and an age.
        call.arg(&nonce).arg("bench").arg(millis(TTL)).arg(RETENTION).arg(0).arg(0);
        let answer = call
            .invoke_async::<(String, u64, redis::Value)>(&mut self.connection.clone())
            .await
            .ok()?;
        let held = SameScriptsHeld { lock: self.clone(), key, nonce, token: answer.1 };
        (answer.0 == "granted").then(|| Box::new(held) as Box<dyn Held>)
    }
}

#[async_trait]
impl Held for SameScriptsHeld {
    async fn free(self: Box<Self>) {
        let Self { lock, key, nonce, token } = *self;
        let mut call = lock.release.key(&key);
        call.arg(nonce).arg(token).arg("").arg(RETENTION).arg(0);
        call.arg("PUBLISH").arg(format!("{key}:channel"));
        call.invoke_async::<()>(&mut lock.connection.clone()).await.unwrap();
    }
}

fn millis(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap()
}

/// A week, in milliseconds.
const RETENTION: u64 = 604_800_000;

static NEXT: AtomicU64 = AtomicU64::new(0);
