//! Connections over streams that the caller opens: for simulations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, ConnectionInfo, RedisError, RedisResult};
use tokio::io::DuplexStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Opens in-memory streams to servers, instead of sockets.
///
/// The driver, its handshake and its pipelining run over the stream as over TCP.
#[derive(Clone)]
pub struct Dialer(Arc<dyn Fn(&str) -> DuplexStream + Send + Sync>);

impl Dialer {
    /// Calls `dial` with the `host:port` of the URL for every connection.
    ///
    /// To simulate a server that refuses connections, drop the other end of the stream. To simulate an
    /// unreachable server, keep the other end and answer nothing.
    pub fn new(dial: impl Fn(&str) -> DuplexStream + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

/// A server and its dialer. Dialed connections are not pooled, because a pool would open sockets.
pub(crate) struct DialTarget {
    pub(crate) dialer: Dialer,
    pub(crate) server: ConnectionInfo,
    pub(crate) limit: Duration,
}

pub(crate) struct DialedConnection {
    pub(crate) connection: MultiplexedConnection,
    driver: AbortHandle,
}

impl Drop for DialedConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl DialTarget {
    pub(crate) async fn open(&self, patience: Duration) -> RedisResult<DialedConnection> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(patience));
        let settings = self.server.redis_settings();
        let connecting = MultiplexedConnection::new_with_config(settings, self.dial(), config);
        let (connection, driver) = match timeout(self.limit, connecting).await {
            Ok(connected) => connected?,
            Err(_elapsed) => return Err(late()),
        };
        Ok(DialedConnection { connection, driver: tokio::spawn(driver).abort_handle() })
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
