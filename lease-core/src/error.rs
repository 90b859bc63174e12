//! What a store could not say.

use std::error::Error;
use std::fmt;

use thiserror::Error;

/// The outcome is unknown: the store could not be asked, or did not answer.
///
/// What a store *did* answer (granted, held, extended, lost) is never an error. The text of an
/// error is one level of a sentence, outermost first; follow
/// [`source`](std::error::Error::source) for the rest. Texts may change between versions,
/// kinds do not.
#[derive(Debug, Error)]
#[error("{kind}")]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// Why a store could not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// What the store keeps for the key cannot be read: somebody else wrote there.
    Corrupt,
    /// The store refuses these credentials, or this operation to them.
    Denied,
    /// The set-up is wrong: a missing table, a claim that the store cannot keep, a locker
    /// whose runtime has ended.
    Misconfigured,
    /// What was asked cannot be done, and was not sent: the source says which value breaks which
    /// rule.
    Refused,
    /// The store asks for fewer requests.
    Throttled,
    /// The store did not answer, or not in time. The request may still have been applied.
    Unavailable,
}

impl StoreError {
    /// An error of `kind`, caused by `source`: an error, or a text that says what to do.
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }

    /// Why the store could not say.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether asking again may help, without anybody mending anything.
    ///
    /// Judged by the store when it makes the error: nobody has to search its text.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            StoreErrorKind::Throttled | StoreErrorKind::Unavailable => true,
            StoreErrorKind::Corrupt
            | StoreErrorKind::Denied
            | StoreErrorKind::Misconfigured
            | StoreErrorKind::Refused => false,
        }
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corrupt => "lock store holds what cannot be read",
            Self::Denied => "lock store refused access",
            Self::Misconfigured => "leases are not set up for this",
            Self::Refused => "what was asked cannot be done",
            Self::Throttled => "lock store asks for fewer requests",
            Self::Unavailable => "lock store did not answer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_aloud_each_level_once() {
        let error = StoreError::new(StoreErrorKind::Unavailable, "connection reset");

        assert_eq!(error.to_string(), "lock store did not answer");
        assert_eq!(error.source().unwrap().to_string(), "connection reset");
    }
}
