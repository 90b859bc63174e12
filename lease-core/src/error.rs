//! The error of a request whose outcome is unknown.

use std::error::Error;
use std::fmt;

use thiserror::Error;

/// The outcome of a request is unknown: the store could not be reached, or did not answer.
///
/// A store's answer (granted, held, extended, lost) is never an error. `Display` prints only the kind, and
/// [`source`](std::error::Error::source) returns the cause. Only texts may change between versions.
#[derive(Debug, Error)]
#[error("{kind}")]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// Why the outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store's record of the key cannot be read: another program wrote to it.
    Corrupt,
    /// The store refuses the credentials, or the credentials do not permit the operation.
    Denied,
    /// The set-up is wrong: for example, a table is missing, or the locker's runtime has ended.
    Misconfigured,
    /// The request is invalid and was not sent. The source names the value and the rule that the
    /// value breaks.
    Refused,
    /// The store asks for fewer requests.
    Throttled,
    /// The store does not support this operation. The request was not sent.
    Unsupported,
    /// The store did not answer in time. The store may still have applied the request.
    Unavailable,
}

impl StoreError {
    /// Makes an error of `kind`, caused by `source`: an error, or a text that names the remedy.
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }

    /// Why the outcome is unknown.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether a retry may help, without an operator's repair.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            StoreErrorKind::Throttled | StoreErrorKind::Unavailable => true,
            StoreErrorKind::Corrupt
            | StoreErrorKind::Denied
            | StoreErrorKind::Misconfigured
            | StoreErrorKind::Refused
            | StoreErrorKind::Unsupported => false,
        }
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corrupt => "lock store has a record that cannot be read",
            Self::Denied => "lock store refused access",
            Self::Misconfigured => "lock store or locker is misconfigured",
            Self::Refused => "request is invalid",
            Self::Throttled => "lock store asks for fewer requests",
            Self::Unsupported => "lock store does not support this request",
            Self::Unavailable => "lock store did not answer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_of_error_has_its_own_text() {
        let error = StoreError::new(StoreErrorKind::Unavailable, "connection reset");

        assert_eq!(error.to_string(), "lock store did not answer");
        assert_eq!(error.source().unwrap().to_string(), "connection reset");
    }
}
