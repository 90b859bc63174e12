//! Connections over streams that the caller makes: for simulations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, ConnectionInfo, RedisError, RedisResult};
use tokio::io::DuplexStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Makes the stream to a server, instead of a socket.
///
/// Nothing but the socket is replaced: the driver, its handshake and its pipelining run over the
/// stream as they would over TCP. So a model of a server can be talked to in paused time.
#[derive(Clone)]
pub struct Dialer(Arc<dyn Fn(&str) -> DuplexStream + Send + Sync>);

impl Dialer {
    /// Calls `dial` with `host:port`, as the URL has it, for every connection.
    ///
    /// A server that refuses is a stream whose other end is dropped; one that is not heard of, a
    /// stream whose other end answers nothing.
    pub fn new(dial: impl Fn(&str) -> DuplexStream + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

/// The way to one server. Without a pool: it would dial by itself.
pub(crate) struct Line {
    pub(crate) dialer: Dialer,
    pub(crate) server: ConnectionInfo,
    pub(crate) limit: Duration,
}

/// A connection, whose task ends when it is dropped.
pub(crate) struct Dialed {
    pub(crate) connection: MultiplexedConnection,
    driver: AbortHandle,
}

impl Drop for Dialed {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Line {
    pub(crate) async fn open(&self, patience: Duration) -> RedisResult<Dialed> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(patience));
        let settings = self.server.redis_settings();
        let connecting = MultiplexedConnection::new_with_config(settings, self.dial(), config);
        let (connection, driver) = match timeout(self.limit, connecting).await {
            Ok(connected) => connected?,
            Err(_elapsed) => return Err(late()),
        };
        Ok(Dialed { connection, driver: tokio::spawn(driver).abort_handle() })
    }

    pub(crate) async fn subscriber(&self) -> RedisResult<PubSub> {
        PubSub::new(self.server.redis_settings(), self.dial()).await
    }

    fn dial(&self) -> DuplexStream {
        (self.dialer.0)(&self.server.addr().to_string())
    }
}

fn late() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}
