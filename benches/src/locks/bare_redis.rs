//! The baseline on Redis: `SET NX PX` and a scripted compare-and-delete, over one multiplexed
//! connection to each server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script, Value};
use tokio::sync::Mutex;

use crate::lock::{Held, Lock};
use crate::{CALL_TIMEOUT, TTL};

/// A lock on one server, or on a majority of several servers.
#[derive(Clone)]
pub(crate) struct Bare {
    connections: Vec<MultiplexedConnection>,
    free: Arc<Script>,
}

struct BareHeld {
    lock: Bare,
    key: String,
    value: u64,
}

impl Bare {
    pub(crate) async fn connect(urls: &[String]) -> Self {
        let free = "if redis.call('GET', KEYS[1]) == ARGV[1] then
            return redis.call('DEL', KEYS[1]) end return 0";
        let free = Script::new(free);
        let mut connections = Vec::new();
        for url in urls {
            let client = redis::Client::open(url.as_str()).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            connection.set_response_timeout(CALL_TIMEOUT);
            free.load_async(&mut connection).await.unwrap();
            connections.push(connection);
        }
        Self { connections, free: Arc::new(free) }
    }

    /// Returns whether a majority agrees. A spawned task reads and ignores the other answers.
    async fn majority<F>(&self, request: impl Fn(MultiplexedConnection) -> F) -> bool
    where
        F: Future<Output = RedisResult<bool>> + Send + 'static,
    {
        let majority = self.connections.len() / 2 + 1;
        let (mut yes, mut answers) = (0, FuturesUnordered::new());
        for connection in &self.connections {
            answers.push(request(connection.clone()));
        }
        while let Some(answer) = answers.next().await {
            yes += usize::from(answer.unwrap_or(false));
            if yes >= majority {
                if !answers.is_empty() {
                    // These requests are already sent.
                    tokio::spawn(async move { while answers.next().await.is_some() {} });
                }
                return true;
            }
        }
        false
    }
}

#[async_trait]
impl Lock for Bare {
    fn name(&self) -> &'static str {
        "bare commands"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let (key, value) = (key.to_owned(), NEXT.fetch_add(1, Ordering::Relaxed));
        let millis = u64::try_from(TTL.as_millis()).unwrap();
        let taken = self.majority(|mut connection| {
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(value).arg("NX").arg("PX").arg(millis);
            async move { Ok(set.query_async::<Value>(&mut connection).await? == Value::Okay) }
        });
        let taken = taken.await;
        let held = BareHeld { lock: self.clone(), key, value };
        taken.then(|| Box::new(held) as Box<dyn Held>)
    }
}

#[async_trait]
impl Held for BareHeld {
    async fn free(self: Box<Self>) {
        let Self { lock, key, value } = *self;
        lock.majority(|mut connection| {
            let (script, key) = (Arc::clone(&lock.free), key.clone());
            async move { script.key(key).arg(value).invoke_async(&mut connection).await }
        })
        .await;
    }
}

/// The baseline of hand-offs: the key is an element of a list, and the server passes it to a waiter
/// (`BLPOP`). If the holder dies, the key is never free again.
pub(crate) struct BlockingList {
    /// A separate connection, since `BLPOP` blocks it.
    waiting: Mutex<MultiplexedConnection>,
    giving: MultiplexedConnection,
}

struct BlockingListHeld {
    giving: MultiplexedConnection,
    key: String,
}

impl BlockingList {
    pub(crate) async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        let mut waiting = client.get_multiplexed_async_connection().await.unwrap();
        waiting.set_response_timeout(CALL_TIMEOUT * 4);
        let giving = client.get_multiplexed_async_connection().await.unwrap();
        Self { waiting: Mutex::new(waiting), giving }
    }
}

#[async_trait]
impl Lock for BlockingList {
    fn name(&self) -> &'static str {
        "bare BLPOP"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let mut waiting = self.waiting.lock().await;
        // The first contender creates the element.
        let mut first = redis::cmd("SET");
        let made = first.arg(format!("{key}:made")).arg(1).arg("NX");
        let mut giving = self.giving.clone();
        if made.query_async::<Value>(&mut giving).await.ok()? != Value::Okay {
            let mut pop = redis::cmd("BLPOP");
            pop.arg(key).arg(0).query_async::<Value>(&mut *waiting).await.ok()?;
        }
        Some(Box::new(BlockingListHeld { giving, key: key.to_owned() }))
    }
}

#[async_trait]
impl Held for BlockingListHeld {
    async fn free(mut self: Box<Self>) {
        let mut push = redis::cmd("RPUSH");
        push.arg(&self.key).arg(1).query_async::<Value>(&mut self.giving).await.unwrap();
    }
}

static NEXT: AtomicU64 = AtomicU64::new(0);
