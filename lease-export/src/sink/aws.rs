//! What the streams of AWS have in common: how they are made, which errors they have, what they answer.

use std::error::Error;

use crate::error::{ServiceError, ServiceErrorKind};
use crate::sink::{Put, SERVICE};

/// A request that failed as a whole with `code`, which the service gave, if it answered at all.
///
/// The codes are those of "Common errors", and of `PutRecords` and `PutRecordBatch`, in the API
/// references of both services. What may be about the records and may be about the stream counts as
/// about the records: then nothing is put away before the sink has taken another.
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

/// A request that was not even made, since of a record no entry can be.
pub(super) fn refused(error: impl Error + Send + Sync + 'static) -> ServiceError {
    ServiceError::new(SERVICE, ServiceErrorKind::Content, error)
}

/// What was answered for one record.
pub(super) fn answer(code: Option<&str>, message: Option<&str>) -> Put {
    match code {
        None => Put::Taken,
        Some(code) => Put::Failed(format!("{code}: {}", message.unwrap_or_default())),
    }
}

/// A sink over a client of AWS, which sends to a stream of a name.
macro_rules! stream_sink {
    ($sink:ident, $limits:expr, $name:literal) => {
        impl $sink {
            #[doc = concat!("Sends to `stream`: ", $name, ". Best over a client without retries of")]
            /// its own: whole requests are repeated here, too.
            pub fn new(client: Client, stream: impl Into<String>) -> Self {
                Self { client, stream: stream.into(), limits: $limits }
            }

            #[doc = concat!("Sends as much at once as `limits` says, made of [`", stringify!($limits), "`].")]
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
