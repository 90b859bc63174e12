//! What queues, buffers and buckets in Redis share: a connection, names, scripts.

use std::fmt;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind};

use crate::error::{ServiceError, ServiceErrorKind};

/// A connection to one Redis, which many share: queues, buffers and buckets are made of it.
///
/// Version 6.2 or newer. A connection that broke is made again at the next call. Cloning is cheap.
#[derive(Clone)]
pub struct RedisLink {
    connection: ConnectionManager,
    server: String,
}

impl RedisLink {
    /// Connects to `url`: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`.
    ///
    /// A call is given up after 5 s, and then its outcome is unknown: long enough to sit out a slow
    /// script, and below any lease's usual ttl.
    ///
    /// # Errors
    ///
    /// Where `url` cannot be read, or nobody answers there.
    pub async fn connect(url: &str) -> Result<Self, ServiceError> {
        Self::connect_with_timeout(url, PATIENCE).await
    }

    /// [`connect`](Self::connect), with calls that are given up after `timeout`: more than 0. Where
    /// events are large, or processors few, 5,000 of them may take longer than usual to arrive.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn connect_with_timeout(url: &str, timeout: Duration) -> Result<Self, ServiceError> {
        // Not the URL itself: there may be a password in it.
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

    /// Runs `script` on `keys` with `arguments`, as one atomic step.
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

    /// Runs one command.
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

    /// Runs commands one after the other.
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

/// A script's text, from a file or several, with its hash.
macro_rules! script {
    ($constant:ident $($file:literal)+) => {
        static $constant: std::sync::LazyLock<redis::Script> =
            std::sync::LazyLock::new(|| redis::Script::new(concat!($(include_str!($file)),+)));
    };
}
pub(crate) use script;

/// All keys of one thing share what is between the braces, so that a Cluster keeps them together;
/// a brace of the name's own would end that too early.
pub(crate) fn key(kind: &str, name: &str, part: &str) -> String {
    let name = name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    format!("{kind}:{{{name}}}:{part}")
}

/// What was answered, but cannot be read.
pub(crate) fn unreadable(service: &'static str, what: impl fmt::Display) -> ServiceError {
    let sentence = format!("Redis holds {what}: somebody else writes under this name");
    ServiceError::new(service, ServiceErrorKind::Corrupt, sentence)
}

/// The driver's own text is part of the sentence, not its source: its errors print their sources
/// themselves.
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

const PATIENCE: Duration = Duration::from_secs(5);

/// How often a connection is tried to be made until a call is given up; between them it waits.
const CONNECTS: usize = 3;
