//! The commands of this library to one Redis, without the library. The difference to the library's
//! store is the library's cost in the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script, Value};

use super::bare_redis::connected;
use crate::TTL;
use crate::lock::{Held, Lock};

#[derive(Clone)]
pub(crate) struct SameCommands(Arc<Connected>);

struct Connected {
    connection: MultiplexedConnection,
    release: String,
}

struct SameCommandsHeld {
    lock: SameCommands,
    key: String,
    text: String,
}

impl SameCommands {
    pub(crate) async fn connect(url: &str) -> Self {
        let mut connection = connected(url).await;
        let release = Script::new(lease_redis::script("release").unwrap());
        let release = release.load_async(&mut connection).await.unwrap();
        // The claims do not create the stream of tokens.
        let mut first = redis::cmd("XADD");
        first.arg(TOKENS).arg("*").arg("t").arg(1);
        first.query_async::<Value>(&mut connection).await.unwrap();
        Self(Arc::new(Connected { connection, release }))
    }
}

#[async_trait]
impl Lock for SameCommands {
    fn name(&self) -> &'static str {
        "the same commands, bare"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let key = format!("bare:{{{key}}}");
        let text = format!("{:032x}h-1 0 0 bench", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut claim = redis::pipe();
        claim.cmd("MULTI");
        let set = claim.cmd("SET").arg(&key).arg(&text);
        set.arg("NX").arg("PX").arg(u64::try_from(TTL.as_millis()).unwrap()).arg("GET");
        let add = claim.cmd("XADD").arg(TOKENS).arg("NOMKSTREAM").arg("MAXLEN").arg("~").arg(1);
        add.arg("*").arg("t").arg(1);
        claim.cmd("EXEC");
        let mut connection = self.0.connection.clone();
        let replies: RedisResult<Vec<Value>> = connection.send_packed_commands(&claim, 0, 4).await;
        let [.., Value::Array(executed)] = &replies.ok()?[..] else { return None };
        (executed.first() == Some(&Value::Nil))
            .then(|| Box::new(SameCommandsHeld { lock: self.clone(), key, text }) as Box<dyn Held>)
    }
}

#[async_trait]
impl Held for SameCommandsHeld {
    async fn free(self: Box<Self>) {
        let Self { lock, key, text } = *self;
        let mut call = redis::cmd("EVALSHA");
        call.arg(&lock.0.release).arg(1).arg(&key);
        call.arg("PUBLISH").arg(TOKENS).arg(text);
        let mut connection = lock.0.connection.clone();
        connection.send_packed_command(&call).await.unwrap();
    }
}

const TOKENS: &str = "bare:tokens";

static NEXT: AtomicU64 = AtomicU64::new(0);
