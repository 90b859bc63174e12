//! Why an export ended before its end.

use lease_core::{FencingToken, LeaseKey, Lost, StoreError};
use thiserror::Error;

use crate::buffer::Fenced;
use crate::error::ServiceError;

/// Why it is not known how an export went on, or why it stopped.
///
/// Whatever it is: events that were not removed are pending, and the lease is released, or lost.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The lease store could not say.
    #[error("export has no answer about its lease")]
    Lease(#[source] StoreError),
    /// The switch could not say, so nothing was done.
    #[error("export does not know whether it is enabled")]
    Switch(#[source] StoreError),
    /// The buffer, the buckets, the queue or the dead letters could not say.
    #[error("export has stopped")]
    Service(#[from] ServiceError),
    /// The lease was lost: somebody else may go on. What was on its way to the sink may arrive.
    #[error("export was stopped in time")]
    Lost(#[source] Lost),
    /// The job that runs this export has the exporter's key as its name, and so its lease.
    #[error(
        "export cannot obtain its lease, since the job {key} that runs it has the same key: give the \
         exporter a key of its own"
    )]
    KeyOfJob {
        /// The key of both.
        key: LeaseKey,
    },
    /// Another exporter was granted the lease, and has begun.
    #[error("export was overtaken: token {token} is stale, {largest} was seen")]
    Overtaken {
        /// Our token.
        token: FencingToken,
        /// The largest that was seen.
        largest: FencingToken,
    },
}

impl ExportError {
    /// Whether asking again may help, without anybody mending anything: also where somebody else goes
    /// on, who may be done by then.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Lease(error) | Self::Switch(error) => error.is_retryable(),
            Self::Service(error) => error.is_retryable(),
            Self::KeyOfJob { .. } => false,
            Self::Lost(_) | Self::Overtaken { .. } => true,
        }
    }

    /// What was answered under `token`, unless that is stale.
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
    fn what_somebody_has_to_mend_is_not_asked_again() {
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
