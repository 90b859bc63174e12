//! The checks of `lease doctor`.
//!
//! Start with [`examine`]. [`cycle`] has the checks that every store gets. [`sqlite`] and the folders `postgres`,
//! `redis` and `dynamodb` have those of one kind of store. `clock` compares a server's clock. [`mounts`] finds
//! the file system of a file.

#[cfg(any(feature = "postgres", feature = "redis"))]
mod clock;
mod cycle;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod mounts;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod sqlite;

#[cfg(any(feature = "postgres", feature = "redis"))]
use std::time::Duration;

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) grade: Grade,
    pub(crate) found: String,
    pub(crate) remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grade {
    Ok,
    /// Leases are less available, or less safe in a rare case.
    Warning,
    /// Two processes may hold one key, or none can.
    Problem,
    /// The check could not be made.
    Unknown,
}

impl Grade {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
            Self::Unknown => "unknown",
        }
    }
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, grade: Grade::Ok, found: found.into(), remedy: None }
    }

    fn bad(
        check: &'static str,
        grade: Grade,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { check, grade, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// The settings of a server that has not answered, because of `error`.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    fn unanswered(error: impl std::fmt::Display) -> Self {
        let remedy =
            "start the server, or repair its network. If it refuses this user, check the login";
        Self::bad("settings", Grade::Unknown, error.to_string(), remedy)
    }

    /// A check that could not be made, because of `error`.
    fn unknown(check: &'static str, error: impl std::fmt::Display) -> Self {
        let remedy = "let this user read the settings, or check them on the server";
        Self::bad(check, Grade::Unknown, error.to_string(), remedy)
    }
}

/// Makes all checks of the store at `url`.
pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let mut findings = Vec::new();
    if scheme == "sqlite" {
        findings.extend(sqlite::examine(url));
        // The store refuses a network file system. To open a file there may take for ever.
        if findings.iter().any(|finding| finding.grade == Grade::Problem) {
            return findings;
        }
    }
    findings.extend(cycle::examine(url).await);
    match scheme.as_str() {
        #[cfg(feature = "redis")]
        scheme if scheme.starts_with("redis") => findings.extend(redis::examine(url).await),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => findings.extend(postgres::examine(url).await),
        #[cfg(feature = "dynamodb")]
        "dynamodb" => findings.extend(dynamodb::examine(url).await),
        "memory" => {
            let remedy = "choose a store that other processes can reach: sqlite:///PATH";
            let found = "other processes do not share the memory of this one";
            findings.push(Finding::bad("shared", Grade::Problem, found, remedy));
        }
        _ => (),
    }
    findings
}

/// How long a server may take to answer, and a replica or standby to catch up. A third of the default ttl.
#[cfg(any(feature = "postgres", feature = "redis"))]
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the lag of replicas and standbys is read.
#[cfg(any(feature = "postgres", feature = "redis"))]
const POLL: Duration = Duration::from_millis(100);
