//! What a queue, a buffer, a bucket or a sink could not say.

use std::error::Error;
use std::fmt;

use thiserror::Error;

/// The outcome is unknown: a service could not be asked, or did not answer.
///
/// What it *did* answer (full, stale, refused by the sink) is never one of these. The text is one
/// level of a sentence; follow [`source`](Error::source) for the rest.
#[derive(Debug, Error)]
#[error("{service} {kind}")]
pub struct ServiceError {
    service: &'static str,
    kind: ServiceErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// Why a service could not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServiceErrorKind {
    /// What it keeps, or has answered, cannot be read: somebody else writes there.
    Corrupt,
    /// It refuses what is in this request, and will refuse that again: without it, the request might
    /// be taken.
    Content,
    /// It refuses this request, whatever is in it: credentials, or a name that it does not know. It
    /// will refuse others likewise.
    Refused,
    /// It did not answer, or not in time. The request may still have been applied.
    Unavailable,
}

impl ServiceError {
    /// An error of `service` ("event buffer", "sink"), caused by `source`: an error, or a text that
    /// says what to do.
    pub fn new(
        service: &'static str,
        kind: ServiceErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { service, kind, source: source.into() }
    }

    /// This one, about `what` in particular.
    #[cfg(feature = "redis")]
    pub(crate) fn about(self, what: &str) -> Self {
        Self { source: format!("{what}: {}", self.source).into(), ..self }
    }

    /// Why the service could not say.
    pub fn kind(&self) -> ServiceErrorKind {
        self.kind
    }

    /// Whether asking again may help, without anybody mending anything.
    pub fn is_retryable(&self) -> bool {
        self.kind == ServiceErrorKind::Unavailable
    }
}

impl fmt::Display for ServiceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corrupt => "said what cannot be read",
            Self::Content => "refused what is in the request",
            Self::Refused => "refused the request",
            Self::Unavailable => "did not answer",
        })
    }
}

/// An error and its sources, outermost first: each prints its own level only.
pub(crate) fn sentence(error: &(dyn Error + 'static)) -> String {
    let levels = std::iter::successors(Some(error), |&error| error.source());
    levels.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_aloud_each_level_once() {
        let error = ServiceError::new("sink", ServiceErrorKind::Unavailable, "connection reset");

        assert_eq!(error.to_string(), "sink did not answer");
        assert_eq!(error.source().unwrap().to_string(), "connection reset");
    }
}
