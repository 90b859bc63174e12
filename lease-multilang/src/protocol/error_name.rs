//! The names of errors in replies to a checkpoint.

use std::error::Error;
use std::fmt;

use lease_core::{LossCause, StoreError, StoreErrorKind};
use lease_kinesis::CheckpointError;

/// The reason why a checkpoint was not written, as the name of a Java class that processors compare.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "`Other` has every other name")]
pub enum ErrorName {
    /// `ShutdownException`: the lease is lost.
    Shutdown,
    /// `ThrottlingException`: the child may retry after a pause.
    Throttling,
    /// `InvalidStateException`: the table is misconfigured, or the current action allows no checkpoint.
    InvalidState,
    /// `KinesisClientLibDependencyException`: the table did not answer. The child may retry.
    Dependency,
    /// `IllegalArgumentException`: the record is not between the last checkpoint and the last delivered
    /// record.
    IllegalArgument,
    /// Any other class.
    Other(String),
}

impl ErrorName {
    /// Returns the name.
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

    /// Returns whether a retry may succeed without a change by an operator.
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
    /// Returns the name that a child receives.
    fn from(error: &CheckpointError) -> Self {
        match error {
            CheckpointError::Lost(_) | CheckpointError::Over => Self::Shutdown,
            CheckpointError::OutOfRange { .. } => Self::IllegalArgument,
            CheckpointError::Store(error) => {
                // An error from a daemon keeps its name.
                let received = error.source().and_then(<dyn Error>::downcast_ref::<Self>);
                received.cloned().unwrap_or_else(|| match error.kind() {
                    StoreErrorKind::Throttled => Self::Throttling,
                    StoreErrorKind::Refused => Self::IllegalArgument,
                    StoreErrorKind::Corrupt | StoreErrorKind::Misconfigured => Self::InvalidState,
                    // The Kinesis Client Library has no exception class for other kinds of errors.
                    _ => Self::Dependency,
                })
            }
            // A later version of lease-kinesis may add an error.
            _ => Self::Dependency,
        }
    }
}

impl From<ErrorName> for CheckpointError {
    /// Returns the error that a processor receives. The error's `source` is the name.
    fn from(name: ErrorName) -> Self {
        let kind = match &name {
            // Daemons do not report the cause of the loss.
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
    use lease_kinesis::{Position, RecordNumber};

    use super::*;

    #[test]
    fn every_name_survives_decoding_and_conversion() {
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
    fn errors_map_to_the_names_that_processors_compare() {
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
    fn retryable_names_are_retryable_errors() {
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
