//! Maps Redis' errors to error kinds with advice. Only this file decides whether a retry may help.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use deadpool::managed::{PoolError, TimeoutType};
use lease_core::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The reason why a request failed: a sentence with the server's name and advice.
///
/// The sentence contains the driver's text. It has no `source()`, because a driver's error may already print
/// its source.
#[derive(Debug, Clone)]
pub(crate) struct ServerFault {
    pub(crate) kind: StoreErrorKind,
    sentence: String,
}

impl ServerFault {
    pub(crate) fn new(kind: StoreErrorKind, sentence: impl Into<String>) -> Self {
        Self { kind, sentence: sentence.into() }
    }

    pub(crate) fn misconfigured(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Misconfigured, sentence)
    }

    pub(crate) fn unavailable(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unavailable, sentence)
    }

    pub(crate) fn corrupt(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Corrupt, sentence)
    }

    /// The server may still apply the request.
    pub(crate) fn late(server: &str, limit: Duration) -> Self {
        Self::unavailable(format!("{server} did not answer within {limit:?}"))
    }

    pub(crate) fn from_redis(server: &str, error: &RedisError) -> Self {
        let (kind, advice) = classify(error);
        let text = error.to_string();
        Self::new(kind, format!("{server}: {}{advice}", text.trim_end_matches(['.', ':', ' '])))
    }

    pub(crate) fn from_connecting(server: &str, error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Self::misconfigured(format!(
                "{server} does not answer like a Redis server: correct the host and port in the URL"
            )),
            _ => Self::from_redis(server, error),
        }
    }

    /// Joins the errors of servers if the answer of any one of them would have sufficed. If one error is
    /// transient, the joint error is transient, because a retry may get this server's answer.
    pub(crate) fn of_all(what: &str, faults: &[Self]) -> Self {
        let reasons: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let transient = faults.iter().find(|fault| fault.is_transient()).or_else(|| faults.first());
        let kind = transient.map_or(StoreErrorKind::Unavailable, |fault| fault.kind);
        Self::new(kind, format!("{what}: {}", reasons.join("; ")))
    }

    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::Throttled)
    }

    /// A redirection in `error` counts as unavailable: the client has followed redirections until its time limit.
    pub(crate) fn from_node_of_cluster(server: &str, error: &RedisError) -> Self {
        use ServerErrorKind::{Ask, ClusterDown, MasterDown, Moved, TryAgain};

        match error.kind() {
            ErrorKind::Server(Ask | Moved | TryAgain | ClusterDown | MasterDown) => {
                let code = error.code().unwrap_or_default();
                let detail = error.detail().unwrap_or_default();
                Self::unavailable(format!("{server}: {code} {}", detail.trim_end_matches('.')))
            }
            _ => Self::from_redis(server, error),
        }
    }

    pub(crate) fn from_sentinel(server: &str, error: &RedisError) -> Self {
        match error.code() {
            Some("ERR") => Self::misconfigured(format!(
                "{server} is no Sentinel ({error}): give the Sentinels' URLs, or connect to a server with \
                 `RedisStore::connect`"
            )),
            _ => Self::from_redis(server, error),
        }
    }

    pub(crate) fn from_pool<E>(
        server: &str,
        error: PoolError<E>,
        refused: impl FnOnce(E) -> Self,
    ) -> Self {
        let reason = match error {
            PoolError::Backend(error) => return refused(error),
            PoolError::Timeout(TimeoutType::Wait) => "all connections of the pool are in use",
            PoolError::Timeout(_) => {
                "the pool opened no connection in time: check that the host is up"
            }
            PoolError::Closed => {
                return Self::misconfigured(format!("{server}: the pool is closed"));
            }
            PoolError::NoRuntimeSpecified => {
                let sentence = format!("{server}: the pool has time limits, but no runtime");
                return Self::misconfigured(sentence);
            }
            PoolError::PostCreateHook(_) => {
                return Self::misconfigured(format!("{server}: a hook of the pool failed"));
            }
        };
        Self::unavailable(format!("{server}: {reason}"))
    }
}

impl fmt::Display for ServerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for ServerFault {}

impl From<ServerFault> for StoreError {
    fn from(fault: ServerFault) -> Self {
        Self::new(fault.kind, fault)
    }
}

pub(crate) fn breaks_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_connection_dropped()
        || error.is_io_error()
        || matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly))
        // If a command of a script fails, Redis 6.2 returns an error that contains the command's error.
        || error.to_string().contains("READONLY")
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(crate) fn from_script(server: &str, text: &str) -> ServerFault {
    let (kind, advice) = classify_text(text).unwrap_or((StoreErrorKind::Unavailable, ""));
    ServerFault::new(kind, format!("{server}: {}{advice}", text.trim_end_matches(['.', ':', ' '])))
}

fn classify(error: &RedisError) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Corrupt, Denied, Misconfigured, Unavailable};

    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => (Corrupt, ""),
        ErrorKind::AuthenticationFailed => (Denied, ": check the user name and the password"),
        ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported => (Misconfigured, ""),
        ErrorKind::MasterNameNotFoundBySentinel => {
            (Misconfigured, ": check the master's name, and that the URLs lead to Sentinels")
        }
        ErrorKind::EmptySentinelList => (Misconfigured, ": give the URL of at least one Sentinel"),
        ErrorKind::Server(ServerErrorKind::NoPerm) => (Denied, ALLOW),
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::CrossSlot) => {
            (Misconfigured, ": this is a Cluster; connect to it with `RedisStore::cluster`")
        }
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::Extension => {
            classify_text(&error.to_string()).unwrap_or((Unavailable, ""))
        }
        // All other errors are transient.
        _ => (Unavailable, ""),
    }
}

fn classify_text(text: &str) -> Option<(StoreErrorKind, &'static str)> {
    use StoreErrorKind::{Corrupt, Denied, Misconfigured, Throttled};

    let has = |part: &str| text.contains(part);
    if has("WRONGTYPE") {
        return Some((Corrupt, ": another program writes keys with this prefix"));
    }
    if has("NOAUTH") || has("WRONGPASS") || has("invalid password") {
        return Some((Denied, ": check the user name and the password"));
    }
    // The last text is that of scripts on Redis 7.0.
    let denied = ["NOPERM", "ACL failure", "no permissions", "user executing the script can't"];
    if denied.into_iter().any(has) {
        return Some((Denied, ALLOW));
    }
    if has("unknown command") || has("disabled command") {
        return Some((Misconfigured, ": leases need EVAL and EVALSHA"));
    }
    if has("MOVED ") || has("CROSSSLOT") {
        return Some((
            Misconfigured,
            ": this is a Cluster; connect to it with `RedisStore::cluster`",
        ));
    }
    if has("DB index is out of range") {
        return Some((Misconfigured, ": correct the database in the URL"));
    }
    if has("cluster support disabled") {
        return Some((
            Misconfigured,
            ": this is no Cluster; connect to it with `RedisStore::connect`",
        ));
    }
    if has("OOM") {
        let advice = ": raise maxmemory, or free memory; held leases can still be extended";
        return Some((Throttled, advice));
    }
    if has("max number of clients") {
        return Some((Throttled, ""));
    }
    None
}

const ALLOW: &str =
    ": grant the user the rights in the section \"Access rights\" of lease-redis' README";
