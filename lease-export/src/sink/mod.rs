//! Where events go.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lease_core::FencingToken;

use crate::batch::Record;
use crate::error::ServiceError;
use crate::limits::Limits;

#[cfg(any(feature = "kinesis", feature = "firehose"))]
mod aws;
mod delivery;
#[cfg(feature = "firehose")]
mod firehose;
#[cfg(feature = "kinesis")]
mod kinesis;
mod memory;

pub use delivery::Retries;
pub(crate) use delivery::{Delivered, Door, Refused, Search};
#[cfg(feature = "firehose")]
pub use firehose::FirehoseSink;
#[cfg(feature = "kinesis")]
pub use kinesis::KinesisSink;
pub use memory::{MemorySink, Response};

/// Takes records, some at a time.
///
/// # To ensure correctness
///
/// What was [taken](Put::Taken) lasts. There is one answer per record, in the order of the request:
/// any other number is refused, and everything in the request counts as not sent. A sink does not
/// retry by itself.
#[async_trait]
pub trait Sink: fmt::Debug + Send + Sync + 'static {
    /// How much it takes at once.
    fn limits(&self) -> Limits;

    /// Sends `records` in one request. A sink that can compare tokens refuses one that is smaller
    /// than the largest it has seen, as a whole.
    ///
    /// # Errors
    ///
    /// Where the request failed as a whole, or its outcome is unknown. The
    /// [kind](crate::ServiceErrorKind) decides what becomes of it: where the sink refuses
    /// [what is in it](crate::ServiceErrorKind::Content), that is sent in halves, until it is clear
    /// which event it refuses, if it takes the others; where it [refuses](crate::ServiceErrorKind::Refused)
    /// whatever is in it, nothing more is sent, and everything is kept; where it is
    /// [unavailable](crate::ServiceErrorKind::Unavailable), the same is sent again.
    ///
    /// # Cancel safety
    ///
    /// It is dropped where it takes longer than the exporter's
    /// [limit](crate::Exporter::with_put_limit), which counts as unavailable: what was in the
    /// request comes again, under the same ids, whether it arrived or not.
    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError>;
}

/// What a sink said of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a sink has a record or it has not")]
pub enum Put {
    /// It has it.
    Taken,
    /// It has not, and says why: a code and a text, for people.
    Failed(String),
}

// A forwarded trait must not fall back to a default by accident.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<T: Sink + ?Sized> Sink for Arc<T> {
    fn limits(&self) -> Limits {
        (**self).limits()
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        (**self).put(token, records).await
    }
}

/// What a sink is called in errors.
const SERVICE: &str = "sink";
