//! The baseline on Redis: `SET NX PX` and a scripted compare-and-delete.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use async_trait::async_trait;
use futures_util::future::select_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisResult, Script, Value};

use crate::lock::{Held, Lock};
use crate::{CALL_TIMEOUT, TTL};

/// A lock on one server, or on a majority of several servers.
///
/// A command costs no timer, no task, and one wake-up at the answer. `FuturesUnordered` would wake
/// its own task after each first poll, and a spawned task would wake another thread.
#[derive(Clone)]
pub(crate) struct Bare(Arc<Servers>);

struct Servers {
    connections: Vec<MultiplexedConnection>,
    free: String,
    late: Mutex<VecDeque<Vec<Request>>>,
}

type Request = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

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
            let mut connection = connected(url).await;
            free.load_async(&mut connection).await.unwrap();
            connections.push(connection);
        }
        let free = free.get_hash().to_owned();
        Self(Arc::new(Servers { connections, free, late: Mutex::default() }))
    }

    async fn agrees(&self, command: Cmd, yes: &Value) -> bool {
        match self.0.connections.as_slice() {
            [only] => {
                let answer = only.clone().send_packed_command(&command).await;
                answer.is_ok_and(|answer| answer == *yes)
            }
            several => self.majority_agrees(several, command, yes).await,
        }
    }

    async fn majority_agrees(
        &self,
        servers: &[MultiplexedConnection],
        command: Cmd,
        yes: &Value,
    ) -> bool {
        let command = Arc::new(command);
        let requests = servers.iter().map(|connection| {
            let (command, mut connection) = (Arc::clone(&command), connection.clone());
            let request = async move { connection.send_packed_command(&command).await };
            Box::pin(request) as Request
        });
        let mut unanswered: Vec<_> = requests.collect();
        let mut agreed = 0;
        while !unanswered.is_empty() {
            let (answer, _, others) = select_all(unanswered).await;
            unanswered = others;
            agreed += usize::from(answer.is_ok_and(|answer| answer == *yes));
            if agreed > servers.len() / 2 {
                self.keep(unanswered);
                return true;
            }
        }
        false
    }

    /// The client sends no request whose future is dropped before the driver's task has received
    /// the request. So unanswered requests are kept for a while.
    fn keep(&self, mut requests: Vec<Request>) {
        // The answers to these requests must not wake this task.
        let mut without_waking = Context::from_waker(Waker::noop());
        requests.retain_mut(|request| request.as_mut().poll(&mut without_waking).is_pending());
        let mut late = self.0.late.lock().unwrap();
        late.push_back(requests);
        let sent = if late.len() > KEPT { late.pop_front() } else { None };
        drop(late);
        drop(sent);
    }
}

/// The scenarios limit the time of their calls, so no request needs a timer.
pub(super) async fn connected(url: &str) -> MultiplexedConnection {
    let config =
        AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(BUFFERED);
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

#[async_trait]
impl Lock for Bare {
    fn name(&self) -> &'static str {
        "bare commands"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let value = NEXT.fetch_add(1, Ordering::Relaxed);
        let millis = u64::try_from(TTL.as_millis()).unwrap();
        let mut set = redis::cmd("SET");
        set.arg(key).arg(value).arg("NX").arg("PX").arg(millis);
        if !self.agrees(set, &Value::Okay).await {
            return None;
        }
        Some(Box::new(BareHeld { lock: self.clone(), key: key.to_owned(), value }))
    }
}

#[async_trait]
impl Held for BareHeld {
    async fn free(self: Box<Self>) {
        let Self { lock, key, value } = *self;
        let mut free = redis::cmd("EVALSHA");
        free.arg(&lock.0.free).arg(1).arg(key).arg(value);
        lock.agrees(free, &Value::Int(1)).await;
    }
}

/// With this size, no call waits for space in the connection's buffer.
const BUFFERED: usize = 4_096;

const KEPT: usize = 1_024;

/// The baseline of hand-offs: the server passes an element of a list to a waiter (`BLPOP`). If the
/// holder crashes, the key is never free again.
pub(crate) struct BlockingList {
    /// `BLPOP` blocks the connection.
    waiting: tokio::sync::Mutex<MultiplexedConnection>,
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
        Self { waiting: tokio::sync::Mutex::new(waiting), giving }
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
