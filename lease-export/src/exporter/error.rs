//! The error of an export.

use lease_core::{FencingToken, LeaseKey, Lost, StoreError};
use thiserror::Error;

use crate::buffer::Fenced;
use crate::error::ServiceError;

/// Why an export stopped, or why its outcome is unknown.
///
/// Events that were not removed are pending, and the lease is released or lost.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The lease store did not answer.
    #[error("export does not know the state of its lease")]
    Lease(#[source] StoreError),
    /// The switch did not answer. Nothing was exported.
    #[error("export does not know whether it is enabled")]
    Switch(#[source] StoreError),
    /// The buffer, the buckets, the queue or the dead letters did not answer.
    #[error("export has stopped")]
    Service(#[from] ServiceError),
    /// The exporter lost the lease, and another exporter may run. The last request may still reach
    /// the sink.
    #[error("export has stopped")]
    Lost(#[source] Lost),
    /// The job that runs this export has the same key as the exporter, and holds the lease of that
    /// key.
    #[error(
        "export cannot obtain its lease: the job {key} that runs it holds the lease of that name; \
         use another key for the exporter"
    )]
    KeyOfJob {
        /// The key of the job and the exporter.
        key: LeaseKey,
    },
    /// Another exporter was granted the lease, and has started.
    #[error("export was overtaken: token {token} is stale, {largest} was seen")]
    Overtaken {
        /// The token of this export.
        token: FencingToken,
        /// The largest token seen.
        largest: FencingToken,
    },
}

impl ExportError {
    /// Whether a retry may succeed without a change by an operator. This includes the case that
    /// another exporter has the lease, since every exporter releases the lease at its end.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Lease(error) | Self::Switch(error) => error.is_retryable(),
            Self::Service(error) => error.is_retryable(),
            Self::KeyOfJob { .. } => false,
            Self::Lost(_) | Self::Overtaken { .. } => true,
        }
    }

    pub(crate) fn unless_overtaken<T>(token: FencingToken, answer: Fenced<T>) -> Result<T, Self> {
        match answer {
            Fenced::Done(done) => Ok(done),
            Fenced::Stale { largest } => Err(Self::Overtaken { token, largest }),
        }
    }
}

#[cfg(test)]
mod tests {
    use lease_core::StoreErrorKind;

    use super::*;
    use crate::error::ServiceErrorKind;

    #[test]
    fn error_that_needs_an_operator_is_not_retryable() {
        let service = |kind| ExportError::Service(ServiceError::new("buffer", kind, "why"));
        let lease = |kind| ExportError::Lease(StoreError::new(kind, "why"));
        let token = |number| FencingToken::new(number).unwrap();
        let overtaken = ExportError::Overtaken { token: token(1), largest: token(2) };

        assert!(service(ServiceErrorKind::Unavailable).is_retryable());
        assert!(lease(StoreErrorKind::Unavailable).is_retryable());
        assert!(overtaken.is_retryable());
        for kind in
            [ServiceErrorKind::Corrupt, ServiceErrorKind::Content, ServiceErrorKind::Refused]
        {
            assert!(!service(kind).is_retryable(), "{kind}");
        }
        assert!(!lease(StoreErrorKind::Misconfigured).is_retryable());
    }
}
