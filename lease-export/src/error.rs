//! The error of queues, buffers, buckets and sinks.

use std::error::Error;
use std::fmt;

use thiserror::Error;

/// An error of a service. The outcome of the request is unknown.
///
/// Answers of the service (full, stale, not taken) are values, and never this error. The text does
/// not repeat the text of the [`source`](Error::source).
#[derive(Debug, Error)]
#[error("{service} {kind}")]
pub struct ServiceError {
    service: &'static str,
    kind: ServiceErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// Why the outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServiceErrorKind {
    /// The service's data or answer cannot be read, for example because another program writes to
    /// the same keys.
    Corrupt,
    /// The service refuses the content of this request, and will refuse the content again.
    Content,
    /// The service refuses this request for another reason, such as wrong credentials or an unknown
    /// name. The service will also refuse other requests.
    Refused,
    /// The service did not answer in time. The request may still have been applied.
    Unavailable,
}

impl ServiceError {
    /// Makes an error of `service` ("event buffer", "sink"). `source` is the cause: an error, or a
    /// text.
    pub fn new(
        service: &'static str,
        kind: ServiceErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { service, kind, source: source.into() }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn about(self, what: &str) -> Self {
        Self { source: format!("{what}: {}", self.source).into(), ..self }
    }

    /// Why the outcome is unknown.
    pub fn kind(&self) -> ServiceErrorKind {
        self.kind
    }

    /// Whether a retry may succeed without a change by an operator.
    pub fn is_retryable(&self) -> bool {
        self.kind == ServiceErrorKind::Unavailable
    }
}

impl fmt::Display for ServiceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corrupt => "returned unreadable data",
            Self::Content => "refused the content of the request",
            Self::Refused => "refused the request",
            Self::Unavailable => "did not answer",
        })
    }
}

/// Each error prints only its own level.
pub(crate) fn sentence(error: &(dyn Error + 'static)) -> String {
    let levels = std::iter::successors(Some(error), |&error| error.source());
    levels.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_has_each_level_once() {
        let error = ServiceError::new("sink", ServiceErrorKind::Unavailable, "connection reset");

        assert_eq!(error.to_string(), "sink did not answer");
        assert_eq!(error.source().unwrap().to_string(), "connection reset");
    }
}
