//! Constructors, error codes and answers for the sinks of Kinesis and Firehose.

use std::error::Error;

use crate::error::{ServiceError, ServiceErrorKind};
use crate::sink::{Put, SERVICE};

/// Maps the error code of a request that failed as a whole. `None` means that the service did not
/// answer.
///
/// The codes are those of "Common errors", `PutRecords` and `PutRecordBatch` in the API references
/// of both services. A code that can concern either the records or the stream counts as an error of
/// the records. This is safe: the exporter discards no event before the sink has taken another
/// event.
pub(super) fn failure(code: Option<&str>, text: String) -> ServiceError {
    let kind = match code {
        Some("InvalidArgumentException" | "ValidationException") => ServiceErrorKind::Content,
        Some(
            "AccessDeniedException"
            | "InvalidSourceException"
            | "ResourceNotFoundException"
            | "UnrecognizedClientException",
        ) => ServiceErrorKind::Refused,
        _ => ServiceErrorKind::Unavailable,
    };
    ServiceError::new(SERVICE, kind, text)
}

/// The error of an unsent request, since a record is not a valid entry.
pub(super) fn refused(error: impl Error + Send + Sync + 'static) -> ServiceError {
    ServiceError::new(SERVICE, ServiceErrorKind::Content, error)
}

pub(super) fn answer(code: Option<&str>, message: Option<&str>) -> Put {
    match code {
        None => Put::Taken,
        Some(code) => Put::Failed(format!("{code}: {}", message.unwrap_or_default())),
    }
}

macro_rules! stream_sink {
    ($sink:ident, $limits:expr, $name:literal) => {
        impl $sink {
            #[doc = concat!("Sends to `stream`: ", $name, ". Disable the client's")]
            /// own retries, since the exporter retries whole requests, too.
            pub fn new(client: Client, stream: impl Into<String>) -> Self {
                Self { client, stream: stream.into(), limits: $limits }
            }

            #[doc = concat!("Sets the limits of a request, derived from [`", stringify!($limits), "`].")]
            #[must_use]
            pub fn with_limits(mut self, limits: Limits) -> Self {
                self.limits = limits;
                self
            }
        }

        impl fmt::Debug for $sink {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($sink))
                    .field("stream", &self.stream)
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(super) use stream_sink;
