//! This library's scripts on one Redis, called directly. The difference from the store is the client's
//! cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script};

use super::bare_redis::connected;
use crate::TTL;
use crate::lock::{Held, Lock};

#[derive(Clone)]
pub(crate) struct SameScripts(Arc<Connected>);

struct Connected {
    connection: MultiplexedConnection,
    /// The hashes of the scripts.
    obtain: String,
    release: String,
}

struct SameScriptsHeld {
    lock: SameScripts,
    key: String,
    nonce: String,
    token: u64,
}

impl SameScripts {
    pub(crate) async fn connect(url: &str) -> Self {
        let mut connection = connected(url).await;
        let script = |name| Script::new(lease_redis::script(name).unwrap());
        let obtain = script("obtain").load_async(&mut connection).await.unwrap();
        let release = script("release").load_async(&mut connection).await.unwrap();
        Self(Arc::new(Connected { connection, obtain, release }))
    }

    async fn call<T: redis::FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        command.query_async(&mut self.0.connection.clone()).await.ok()
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
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.0.obtain).arg(2).arg(&key).arg(format!("{key}:attributes"));
        // Only quorums use a round and an age.
        call.arg(&nonce).arg("bench").arg(millis(TTL)).arg(RETENTION).arg(0).arg(0);
        let answer = self.call::<(String, u64, redis::Value)>(&call).await?;
        let held = SameScriptsHeld { lock: self.clone(), key, nonce, token: answer.1 };
        (answer.0 == "granted").then(|| Box::new(held) as Box<dyn Held>)
    }
}

#[async_trait]
impl Held for SameScriptsHeld {
    async fn free(self: Box<Self>) {
        let Self { lock, key, nonce, token } = *self;
        let mut call = redis::cmd("EVALSHA");
        call.arg(&lock.0.release).arg(1).arg(&key);
        call.arg(nonce).arg(token).arg("").arg(RETENTION).arg(0);
        call.arg("PUBLISH").arg(format!("{key}:channel"));
        lock.call::<()>(&call).await.unwrap();
    }
}

fn millis(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap()
}

/// A week, in milliseconds.
const RETENTION: u64 = 604_800_000;

static NEXT: AtomicU64 = AtomicU64::new(0);
