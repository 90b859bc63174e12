//! What Redis' errors mean: the only place that judges whether asking again may help.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use deadpool_redis::PoolError;
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
        Self::new(kind, format!("{server}: {error}{advice}"))
    }

    pub(crate) fn from_pool(server: &str, error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::from_redis(server, &error),
            PoolError::Timeout(_) => Self::unavailable(format!("{server}: {error}")),
            other => Self::misconfigured(format!("{server}: {other}")),
        }
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
    if says("OOM") || says("max number of clients") {
        return Some((Throttled, ""));
    }
    None
}

const ALLOW: &str = ": allow the user what the section \"Access rights\" of lease-redis lists";
