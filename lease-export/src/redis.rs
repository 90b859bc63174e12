//! The connection, key names and scripts that queues, buffers and buckets in Redis share.

use std::fmt;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind};

use crate::error::{ServiceError, ServiceErrorKind};

/// A connection to one Redis server, shared by queues, buffers and buckets. Needs Redis 6.2 or
/// newer. After a disconnect, the next call reconnects. Cloning is cheap.
#[derive(Clone)]
pub struct RedisLink {
    connection: ConnectionManager,
    server: String,
}

impl RedisLink {
    /// Connects to `url`: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`.
    ///
    /// A call times out after 5 s, and its outcome is unknown then. 5 s are longer than a slow
    /// script, and shorter than the usual lease ttl.
    ///
    /// # Errors
    ///
    /// Fails if `url` cannot be parsed, or no server answers there.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call closes its connection.
    pub async fn connect(url: &str) -> Result<Self, ServiceError> {
        Self::connect_with_timeout(url, TIMEOUT).await
    }

    /// Connects like [`connect`](Self::connect), with a timeout per call of `timeout`, which must
    /// be more than 0. Large events or a slow machine may need more than 5 s for a read of 5,000
    /// events.
    ///
    /// # Errors
    ///
    /// Fails if `url` cannot be parsed, or no server answers there.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call closes its connection.
    pub async fn connect_with_timeout(url: &str, timeout: Duration) -> Result<Self, ServiceError> {
        // The URL may contain a password, so the error does not contain the URL.
        let refused = |error: RedisError| {
            ServiceError::new("redis", ServiceErrorKind::Refused, format!("URL: {error}"))
        };
        let client = redis::Client::open(url).map_err(refused)?;
        let server = client.get_connection_info().addr().to_string();
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(timeout))
            .set_connection_timeout(Some(timeout))
            .set_number_of_retries(CONNECTS);
        let connection = ConnectionManager::new_with_config(client, config)
            .await
            .map_err(|error| failure(&server, "redis", &error))?;
        Ok(Self { connection, server })
    }

    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        service: &'static str,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<T, ServiceError> {
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        for argument in arguments {
            call.arg(argument);
        }
        let mut connection = self.connection.clone();
        call.invoke_async(&mut connection)
            .await
            .map_err(|error| failure(&self.server, service, &error))
    }

    pub(crate) async fn command<T: FromRedisValue>(
        &self,
        service: &'static str,
        command: &redis::Cmd,
    ) -> Result<T, ServiceError> {
        let mut connection = self.connection.clone();
        command
            .query_async(&mut connection)
            .await
            .map_err(|error| failure(&self.server, service, &error))
    }

    pub(crate) async fn pipeline<T: FromRedisValue>(
        &self,
        service: &'static str,
        commands: &redis::Pipeline,
    ) -> Result<T, ServiceError> {
        let mut connection = self.connection.clone();
        commands
            .query_async(&mut connection)
            .await
            .map_err(|error| failure(&self.server, service, &error))
    }
}

impl fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisLink").field(&self.server).finish()
    }
}

macro_rules! script {
    ($constant:ident $($file:literal)+) => {
        static $constant: std::sync::LazyLock<redis::Script> =
            std::sync::LazyLock::new(|| redis::Script::new(concat!($(include_str!($file)),+)));
    };
}
pub(crate) use script;

/// The keys of one object share the hash tag between the braces, so a Cluster keeps them on one
/// node. Braces in the name would end the tag early, so they are escaped.
pub(crate) fn key(kind: &str, name: &str, part: &str) -> String {
    let name = name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    format!("{kind}:{{{name}}}:{part}")
}

pub(crate) fn unreadable(service: &'static str, what: impl fmt::Display) -> ServiceError {
    let sentence = format!("Redis holds {what}: another program writes under this name");
    ServiceError::new(service, ServiceErrorKind::Corrupt, sentence)
}

/// Driver errors print their sources themselves. So the new error has the driver error's text, and
/// not the driver error as source.
fn failure(server: &str, service: &'static str, error: &RedisError) -> ServiceError {
    let kind = match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => ServiceErrorKind::Corrupt,
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Server(ServerErrorKind::NoPerm) => ServiceErrorKind::Refused,
        _ if error.to_string().contains("WRONGTYPE") => ServiceErrorKind::Corrupt,
        _ if error.to_string().contains("NOAUTH") => ServiceErrorKind::Refused,
        _ => ServiceErrorKind::Unavailable,
    };
    ServiceError::new(service, kind, format!("{server}: {error}"))
}

const TIMEOUT: Duration = Duration::from_secs(5);

/// The attempts of one call, with backoff between them.
const CONNECTS: usize = 3;
