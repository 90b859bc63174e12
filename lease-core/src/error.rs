//! What a store could not say, what a caller may not ask, and how a lease ends too soon.

use std::error::Error;
use std::fmt;

use thiserror::Error;

use crate::grant::LossCause;
use crate::key::LeaseKey;
use crate::token::FencingToken;

/// A value that breaks a rule; its text names the value and the rule.
///
/// Made where the value enters, before any I/O.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{sentence}")]
pub struct InvalidInput {
    sentence: String,
}

impl InvalidInput {
    /// An error that reads as `sentence`: say which value broke which rule.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into() }
    }
}

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
            StoreErrorKind::Corrupt | StoreErrorKind::Denied | StoreErrorKind::Misconfigured => {
                false
            }
        }
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corrupt => "lock store holds what cannot be read",
            Self::Denied => "lock store refused access",
            Self::Misconfigured => "leases are not set up for this",
            Self::Throttled => "lock store asks for fewer requests",
            Self::Unavailable => "lock store did not answer",
        })
    }
}

/// A lease was lost while it was wanted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("lease on {key} with token {token} was lost: {cause}")]
#[non_exhaustive]
pub struct Lost {
    /// The key that is no longer held.
    pub key: LeaseKey,
    /// The token of the lost grant.
    pub token: FencingToken,
    /// How it was lost.
    pub cause: LossCause,
}

impl Lost {
    pub(crate) fn new(key: LeaseKey, token: FencingToken, cause: LossCause) -> Self {
        Self { key, token, cause }
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
