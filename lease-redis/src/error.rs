//! What Redis' errors mean: the only place that judges whether asking again may help.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use deadpool::managed::{PoolError, TimeoutType};
use lease_core::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a server gave no answer, in a sentence that names it and says what to do.
///
/// The driver's own text is part of the sentence, not its source: its errors print their sources
/// themselves, and each level is to be read once.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) kind: StoreErrorKind,
    sentence: String,
}

impl Fault {
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

    /// `server` did not answer in time. The request may still be applied.
    pub(crate) fn late(server: &str, limit: Duration) -> Self {
        Self::unavailable(format!("{server} did not answer within {limit:?}"))
    }

    /// What `server` said instead of an answer.
    pub(crate) fn from_redis(server: &str, error: &RedisError) -> Self {
        let (kind, advice) = judge(error);
        let text = error.to_string();
        Self::new(kind, format!("{server}: {}{advice}", text.trim_end_matches(['.', ':', ' '])))
    }

    /// Why no connection to `server` was made.
    pub(crate) fn from_connecting(server: &str, error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Self::misconfigured(format!(
                "{server} does not answer like a Redis server: correct the host and port in the URL"
            )),
            _ => Self::from_redis(server, error),
        }
    }

    /// None of several servers helped, each for its own reason. That passes unless each has to be
    /// corrected: then it says so.
    pub(crate) fn of_all(what: &str, faults: &[Self]) -> Self {
        let reasons: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let passes = faults.iter().find(|fault| fault.passes()).or_else(|| faults.first());
        let kind = passes.map_or(StoreErrorKind::Unavailable, |fault| fault.kind);
        Self::new(kind, format!("{what}: {}", reasons.join("; ")))
    }

    /// Whether asking again may help, without anybody correcting anything.
    pub(crate) fn passes(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::Throttled)
    }

    /// What a node of a Cluster said instead of an answer, where it leads elsewhere, too: the client
    /// has followed that for as long as it may.
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

    /// What a Sentinel said instead of an answer.
    pub(crate) fn from_sentinel(server: &str, error: &RedisError) -> Self {
        match error.code() {
            Some("ERR") => Self::misconfigured(format!(
                "{server} is no Sentinel ({error}): name the Sentinels, or connect to a server by \
                 `RedisStore::connect`"
            )),
            _ => Self::from_redis(server, error),
        }
    }

    /// Why a pool lent no connection to `server`.
    pub(crate) fn from_pool<E>(
        server: &str,
        error: PoolError<E>,
        refused: impl FnOnce(E) -> Self,
    ) -> Self {
        let why = match error {
            PoolError::Backend(error) => return refused(error),
            PoolError::Timeout(TimeoutType::Wait) => "every connection of the pool is in use",
            PoolError::Timeout(_) => "no connection was made in time: is the host up?",
            PoolError::Closed => {
                return Self::misconfigured(format!("{server}: the pool is closed"));
            }
            PoolError::NoRuntimeSpecified => {
                let sentence =
                    format!("{server}: the pool has limits, but no runtime to time them");
                return Self::misconfigured(sentence);
            }
            PoolError::PostCreateHook(_) => {
                return Self::misconfigured(format!("{server}: a hook of the pool failed"));
            }
        };
        Self::unavailable(format!("{server}: {why}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for Fault {}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        Self::new(fault.kind, fault)
    }
}

/// Whether the connection that `error` came over is of no more use: it broke, or it leads to a
/// server that is not the master any more.
pub(crate) fn breaks_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_connection_dropped()
        || error.is_io_error()
        || matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly))
        // As Redis 6.2 wraps it, where a script meets it.
        || error.to_string().contains("READONLY")
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// What an error within a script's answer means, where the script went on with other keys.
pub(crate) fn from_script(server: &str, text: &str) -> Fault {
    let (kind, advice) = judge_text(text).unwrap_or((StoreErrorKind::Unavailable, ""));
    Fault::new(kind, format!("{server}: {text}{advice}"))
}

fn judge(error: &RedisError) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Corrupt, Denied, Misconfigured, Unavailable};

    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => (Corrupt, ""),
        ErrorKind::AuthenticationFailed => (Denied, ": check the user name and the password"),
        ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported => (Misconfigured, ""),
        ErrorKind::MasterNameNotFoundBySentinel => {
            (Misconfigured, ": check the master's name, and that these are Sentinels")
        }
        ErrorKind::EmptySentinelList => (Misconfigured, ": name at least one Sentinel"),
        ErrorKind::Server(ServerErrorKind::NoPerm) => (Denied, ALLOW),
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::CrossSlot) => {
            (Misconfigured, ": this is a Cluster; connect to it by `RedisStore::cluster`")
        }
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::Extension => {
            judge_text(&error.to_string()).unwrap_or((Unavailable, ""))
        }
        // Everything else passes: it broke off, loads, fails over, or has to be found again.
        _ => (Unavailable, ""),
    }
}

/// The errors that the driver knows only by their text.
fn judge_text(text: &str) -> Option<(StoreErrorKind, &'static str)> {
    use StoreErrorKind::{Corrupt, Denied, Misconfigured, Throttled};

    let says = |part: &str| text.contains(part);
    if says("WRONGTYPE") {
        return Some((Corrupt, ": somebody else writes under this prefix"));
    }
    if says("NOAUTH") || says("WRONGPASS") || says("invalid password") {
        return Some((Denied, ": check the user name and the password"));
    }
    if says("NOPERM") || says("ACL failure") || says("no permissions") {
        return Some((Denied, ALLOW));
    }
    if says("unknown command") || says("disabled command") {
        return Some((Misconfigured, ": leases need EVAL and EVALSHA"));
    }
    if says("MOVED ") || says("CROSSSLOT") {
        return Some((
            Misconfigured,
            ": this is a Cluster; connect to it by `RedisStore::cluster`",
        ));
    }
    if says("DB index is out of range") {
        return Some((Misconfigured, ": correct the database in the URL"));
    }
    if says("cluster support disabled") {
        return Some((
            Misconfigured,
            ": this is no Cluster; connect to it by `RedisStore::connect`",
        ));
    }
    // It has answered, and nothing was written: fewer requests, or more memory, will help.
    if says("OOM") {
        let advice = ": raise maxmemory, or free memory; leases that are held are kept meanwhile";
        return Some((Throttled, advice));
    }
    if says("max number of clients") {
        return Some((Throttled, ""));
    }
    None
}

const ALLOW: &str = ": allow the user what the section \"Access rights\" of lease-redis lists";
