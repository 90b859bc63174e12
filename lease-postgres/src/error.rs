//! Maps PostgreSQL's errors to error kinds with advice. Only this file decides whether a retry may help.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use deadpool_postgres::PoolError;
use lease_core::{StoreError, StoreErrorKind};
use tokio_postgres::error::SqlState;

/// A sentence with the server's name, the driver's text and advice.
///
/// It has no `source()`, because the driver's errors print their sources.
#[derive(Debug, Clone)]
pub(crate) struct ServerFault {
    pub(crate) kind: StoreErrorKind,
    is_locked: bool,
    is_conflict: bool,
    sentence: String,
}

impl ServerFault {
    pub(crate) fn new(kind: StoreErrorKind, sentence: impl Into<String>) -> Self {
        Self { kind, is_locked: false, is_conflict: false, sentence: sentence.into() }
    }

    /// Whether the statement waited for a lock until its limit.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Whether one row made the statement fail: its value is invalid, or another transaction has changed it.
    pub(crate) fn concerns_one_row(&self) -> bool {
        self.is_conflict || self.kind == StoreErrorKind::Corrupt
    }

    /// Whether a pooler refuses connections with options for the session. PgBouncer names a startup parameter, and
    /// the proxy of RDS names command-line options.
    pub(crate) fn refuses_options(&self) -> bool {
        ["startup parameter", "options"].iter().any(|word| self.sentence.contains(word))
    }

    pub(crate) fn misconfigured(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Misconfigured, sentence)
    }

    pub(crate) fn denied(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Denied, sentence)
    }

    pub(crate) fn unavailable(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unavailable, sentence)
    }

    pub(crate) fn corrupt(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Corrupt, sentence)
    }

    pub(crate) fn refused(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Refused, sentence)
    }

    /// The server may still apply the request.
    pub(crate) fn late(server: &str, limit: Duration) -> Self {
        Self::unavailable(format!("{server} did not answer within {limit:?}"))
    }

    pub(crate) fn from_driver(server: &str, error: &tokio_postgres::Error) -> Self {
        let (kind, advice) = match error.code() {
            Some(code) => by_code(code),
            None => by_text(&text_of(error)),
        };
        let is_locked = error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE);
        let is_conflict = error.code().is_some_and(|code| code.code().starts_with("40"));
        Self {
            is_locked,
            is_conflict,
            ..Self::new(kind, format!("{server}: {}{advice}", text_of(error)))
        }
    }

    pub(crate) fn from_pool(server: &str, error: &PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::from_driver(server, error),
            PoolError::Closed => Self::misconfigured(format!("{server}: the pool is closed")),
            error => Self::unavailable(format!("{server}: {error}")),
        }
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

/// Returns true if the connection is broken, or if the server accepts no writes.
pub(crate) fn breaks_connection(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => {
            *code == SqlState::READ_ONLY_SQL_TRANSACTION
                || ["08", "57P"].iter().any(|class| code.code().starts_with(class))
        }
        None => true,
    }
}

/// Omits the statement and its parameters.
fn text_of(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn by_code(code: &SqlState) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Corrupt, Denied, Misconfigured, Throttled, Unavailable};

    match code.code() {
        "28P01" | "28000" => (Denied, ": check the user name and the password in the URL"),
        "42501" => (Denied, ALLOW),
        "3D000" => (Misconfigured, ": correct the database in the URL, or create the database"),
        "3F000" | "42P01" => (Misconfigured, CREATE),
        "42703" | "42804" | "42883" | "42P10" => (Misconfigured, OTHER_FORM),
        "26000" | "42P05" | "08P01" => {
            (Misconfigured, ": a pooler or proxy does not pass unnamed statements on")
        }
        "22P05" | "22021" => (Misconfigured, ": leases need a database with the encoding UTF8"),
        "53300" => (Throttled, ": raise max_connections, or use a pooler"),
        "53400" | "53200" => (Throttled, ""),
        "53100" => (Unavailable, ": free space on the server's disk"),
        "55P03" => (Unavailable, LOCKED),
        "25006" => {
            (Unavailable, ": it accepts no writes; give the URL of the primary, or of all servers")
        }
        text if text.starts_with("22") || text.starts_with("23") => (Corrupt, OTHER_PROGRAM),
        text if text.starts_with("42") => (Misconfigured, ""),
        // All other codes are transient. At 40001 and 40P01, the server preferred a concurrent transaction.
        _ => (Unavailable, ""),
    }
}

fn by_text(text: &str) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Denied, Misconfigured, Unavailable};

    let has = |part: &str| text.contains(part);
    if has("no TLS implementation configured") {
        return (Misconfigured, ": enable the feature `tls` of lease-postgres");
    }
    if has("server does not support TLS") {
        return (Misconfigured, ": set `ssl = on` in the server, or `sslmode=disable` in the URL");
    }
    if has("TLS handshake") && has("certificate") {
        return (
            Misconfigured,
            ": give the authority's certificate by `with_root_certificates`, or set \
             `sslmode=disable` in the URL",
        );
    }
    if has("password missing") || has("authentication") {
        return (Denied, ": check the user name and the password in the URL");
    }
    if has("does not allow writes") {
        return (
            Unavailable,
            ": it is a standby or read-only; give the URL of the primary, or of all servers: \
             `postgres://a,b/database`",
        );
    }
    if has("unexpected message from server") || has("error parsing response") {
        return (
            Misconfigured,
            ": it does not answer like a PostgreSQL server; correct the host and port in the URL",
        );
    }
    (Unavailable, "")
}

pub(crate) const CREATE: &str = ": create the table by `create_table`, or by the SQL in the section \
    \"The table\" of lease-postgres' README";
pub(crate) const ALLOW: &str =
    ": grant the role the rights in the section \"Access rights\" of lease-postgres' README";
const OTHER_FORM: &str =
    ": the table was not made by lease-postgres; give another table by `with_table`";
const OTHER_PROGRAM: &str = ": another program writes to the table of leases";
const LOCKED: &str = ": another session has locked the row; `pg_blocking_pids` finds it, and \
    `idle_in_transaction_session_timeout` ends it";
