//! Sinks: the destinations of events.

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
pub(crate) use delivery::{BisectMode, Delivered, Refused, SinkCall};
#[cfg(feature = "firehose")]
pub use firehose::FirehoseSink;
#[cfg(feature = "kinesis")]
pub use kinesis::KinesisSink;
pub use memory::{MemorySink, Response};

/// Takes records, up to its limits per request.
///
/// # To ensure correctness
///
/// A record that was [taken](Put::Taken) is durable. A request has one answer per record, in the
/// order of the records. With any other number of answers, the whole request counts as not sent. A
/// sink does not retry.
#[async_trait]
pub trait Sink: fmt::Debug + Send + Sync + 'static {
    /// The limits of a request.
    fn limits(&self) -> Limits;

    /// Sends `records` in one request. A sink that can compare tokens refuses the whole request if
    /// `token` is smaller than the largest token seen.
    ///
    /// # Errors
    ///
    /// Fails if the request failed as a whole, or its outcome is unknown. The exporter reacts to
    /// the [kind](crate::ServiceErrorKind):
    ///
    /// - [`Content`](crate::ServiceErrorKind::Content): the exporter bisects the request to find
    ///   the events that the sink refuses.
    /// - [`Refused`](crate::ServiceErrorKind::Refused): the export ends, and all events stay
    ///   pending.
    /// - [`Unavailable`](crate::ServiceErrorKind::Unavailable) or
    ///   [`Corrupt`](crate::ServiceErrorKind::Corrupt): the events stay pending. The exporter first
    ///   retries after `Unavailable`.
    ///
    /// # Cancel safety
    ///
    /// The exporter drops a request that exceeds its [limit](crate::Exporter::with_put_limit), and
    /// sends the events again under the same ids.
    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError>;
}

/// The sink's answer for a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a sink took a record or did not")]
pub enum Put {
    /// The sink has the record.
    Taken,
    /// The sink does not have the record. The string has the error code and text, for logs.
    Failed(String),
}

// `Arc` forwards every method: a default method must not replace the sink's own method.
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

const SERVICE: &str = "sink";
