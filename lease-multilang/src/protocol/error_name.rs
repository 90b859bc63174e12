//! Why a checkpoint was not kept, in the one word that a child is told.

use std::error::Error;
use std::fmt;

use lease_core::{LossCause, StoreError, StoreErrorKind};

use crate::checkpoint::CheckpointError;

/// Why a checkpoint was not kept: the name of a Java class, on which processors in all languages
/// branch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "whatever else is in `Other`")]
pub enum ErrorName {
    /// `ShutdownException`: the lease is not held any more. Nothing can be checkpointed.
    Shutdown,
    /// `ThrottlingException`: it may be tried again, after a while.
    Throttling,
    /// `InvalidStateException`: the table is not as it must be; or this is not the time for
    /// checkpoints.
    InvalidState,
    /// `KinesisClientLibDependencyException`: the table did not answer. It may be tried again.
    Dependency,
    /// `IllegalArgumentException`: what was asked for is not between the last checkpoint and what
    /// was delivered.
    IllegalArgument,
    /// Any other class.
    Other(String),
}

impl ErrorName {
    /// The name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Shutdown => "ShutdownException",
            Self::Throttling => "ThrottlingException",
            Self::InvalidState => "InvalidStateException",
            Self::Dependency => "KinesisClientLibDependencyException",
            Self::IllegalArgument => "IllegalArgumentException",
            Self::Other(name) => name,
        }
    }

    /// Whether asking again may help, without anybody mending anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Throttling | Self::Dependency)
    }
}

impl From<&str> for ErrorName {
    fn from(name: &str) -> Self {
        let known = [
            Self::Shutdown,
            Self::Throttling,
            Self::InvalidState,
            Self::Dependency,
            Self::IllegalArgument,
        ];
        let known = known.into_iter().find(|known| known.as_str() == name);
        known.unwrap_or_else(|| Self::Other(name.into()))
    }
}

impl From<&CheckpointError> for ErrorName {
    /// What a child is told of an error here.
    fn from(error: &CheckpointError) -> Self {
        match error {
            CheckpointError::Lost(_) | CheckpointError::Over => Self::Shutdown,
            CheckpointError::OutOfRange { .. } => Self::IllegalArgument,
            CheckpointError::Store(error) => {
                // One that was heard from a daemon is passed on as it was.
                let heard = error.source().and_then(<dyn Error>::downcast_ref::<Self>);
                heard.cloned().unwrap_or_else(|| match error.kind() {
                    StoreErrorKind::Throttled => Self::Throttling,
                    StoreErrorKind::Refused => Self::IllegalArgument,
                    StoreErrorKind::Corrupt | StoreErrorKind::Misconfigured => Self::InvalidState,
                    // As is everything that the Kinesis Client Library has no class for.
                    _ => Self::Dependency,
                })
            }
        }
    }
}

impl From<ErrorName> for CheckpointError {
    /// What a processor here is told of what its daemon said: the name is the error's source.
    fn from(name: ErrorName) -> Self {
        let kind = match &name {
            // Daemons do not say how it was lost.
            ErrorName::Shutdown => return Self::Lost(LossCause::Revoked),
            ErrorName::Throttling => StoreErrorKind::Throttled,
            ErrorName::Dependency => StoreErrorKind::Unavailable,
            ErrorName::InvalidState => StoreErrorKind::Misconfigured,
            ErrorName::IllegalArgument | ErrorName::Other(_) => StoreErrorKind::Refused,
        };
        Self::Store(StoreError::new(kind, name))
    }
}

impl fmt::Display for ErrorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error for ErrorName {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{Position, RecordNumber};

    #[test]
    fn each_name_is_read_as_it_is_written_and_comes_back_from_an_error_of_ours() {
        for name in [
            "ShutdownException",
            "ThrottlingException",
            "InvalidStateException",
            "KinesisClientLibDependencyException",
            "IllegalArgumentException",
            "NullPointerException",
            "",
        ] {
            let read = ErrorName::from(name);
            let error = CheckpointError::from(read.clone());

            assert_eq!(read.as_str(), name);
            assert_eq!(ErrorName::from(&error), read);
        }
    }

    #[test]
    fn errors_of_ours_have_the_names_on_which_processors_branch() {
        let record = RecordNumber::new("1".parse().unwrap());
        let (checkpointed, delivered) = (Position::TrimHorizon, Position::TrimHorizon);
        let store = |kind| CheckpointError::Store(StoreError::new(kind, "as it said"));
        let cases = [
            (CheckpointError::Lost(LossCause::Expired), "ShutdownException"),
            (CheckpointError::Over, "ShutdownException"),
            (
                CheckpointError::OutOfRange { record, checkpointed, delivered },
                "IllegalArgumentException",
            ),
            (store(StoreErrorKind::Throttled), "ThrottlingException"),
            (store(StoreErrorKind::Unavailable), "KinesisClientLibDependencyException"),
            (store(StoreErrorKind::Denied), "KinesisClientLibDependencyException"),
            (store(StoreErrorKind::Misconfigured), "InvalidStateException"),
            (store(StoreErrorKind::Corrupt), "InvalidStateException"),
            (store(StoreErrorKind::Refused), "IllegalArgumentException"),
        ];

        for (error, name) in cases {
            assert_eq!(ErrorName::from(&error).as_str(), name, "{error:?}");
        }
    }

    #[test]
    fn what_is_worth_another_try_is_the_same_on_both_sides() {
        for name in [
            ErrorName::Throttling,
            ErrorName::Dependency,
            ErrorName::InvalidState,
            ErrorName::IllegalArgument,
            ErrorName::Other("NullPointerException".into()),
        ] {
            let CheckpointError::Store(error) = name.clone().into() else { panic!("{name}") };

            assert_eq!(error.is_retryable(), name.is_retryable(), "{name}");
        }
    }
}
