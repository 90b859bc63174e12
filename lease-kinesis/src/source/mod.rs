//! Streams as sources of records, and the reader of one shard.
//!
//! Start here with the trait [`Source`]. `aws` implements it for Kinesis Data Streams, `sim` for
//! tests. `reader` reads one shard through a source: it limits the rate, retries and resumes. `aggregate`
//! splits the aggregated records of the Kinesis Producer Library.

pub(crate) mod aggregate;
#[cfg(feature = "aws")]
mod aws;
pub(crate) mod reader;
mod sim;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use thiserror::Error;

use crate::position::SequenceNumber;
use crate::shard::{Shard, ShardId};

#[cfg(feature = "aws")]
pub use self::aws::KinesisSource;
pub use self::sim::{Faults, SimRecord, SimStream};

/// A stream whose shards can be listed and read.
///
/// Each method makes one attempt. The caller limits the rate of calls, retries, and renews iterators.
///
/// # Cancel safety
///
/// The caller may drop any call. A dropped call counts towards the rate limits, and may delay the next
/// subscription.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Lists all shards, open and closed, over all pages, in any order.
    ///
    /// # Errors
    ///
    /// Fails if the stream did not return all shards.
    async fn shards(&self) -> Result<Vec<Shard>, SourceError>;

    /// Creates an iterator that reads `shard` from `from` on.
    ///
    /// # Errors
    ///
    /// [`SourceErrorKind::NoSuchShard`] if the stream has removed the shard.
    async fn iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, SourceError>;

    /// Reads up to `limit` records (1 to 10,000), starting at `iterator`.
    ///
    /// # Errors
    ///
    /// [`SourceErrorKind::ExpiredIterator`] if the caller must create another iterator.
    /// [`SourceErrorKind::Throttled`] if the caller must wait.
    async fn fetch(&self, iterator: &ShardIterator, limit: u16) -> Result<Fetched, SourceError>;

    /// Subscribes to the records of `shard` (enhanced fan-out). A subscription ends after some minutes. The
    /// caller then subscribes again, from the position after the last push.
    ///
    /// # Errors
    ///
    /// [`SourceErrorKind::Unsupported`] if the source cannot push, as in the default implementation.
    /// [`SourceErrorKind::Throttled`] if the consumer subscribed a moment ago.
    async fn subscribe(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<BoxStream<'static, Result<Fetched, SourceError>>, SourceError> {
        let _ = (shard, from);
        Err(SourceError::new(SourceErrorKind::Unsupported, "this source pushes no records"))
    }
}

/// Selects where an iterator or a subscription starts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the positions that Kinesis knows")]
pub enum ReadFrom {
    /// The record with this number or, if it is missing, the next record.
    At(SequenceNumber),
    /// The first record that arrived at this time or later, in milliseconds since 1970.
    Timestamp(u64),
    /// The oldest record that the stream retains.
    TrimHorizon,
    /// The next record that arrives.
    Latest,
}

/// A read position in a shard, as text that the source understands. An iterator expires after some minutes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardIterator(Arc<str>);

/// The result of one fetch, or one push.
#[derive(Debug, Clone, Default)]
#[expect(clippy::exhaustive_structs, reason = "implementations of a source create these")]
pub struct Fetched {
    /// The records, in order. May be empty although the shard has records.
    pub records: Vec<RawRecord>,
    /// The position of the next read. `None` at the end of a closed shard. In a push, the sequence number at
    /// which the next subscription starts. Any other text in a push means only that the shard has more
    /// records.
    pub next: Option<ShardIterator>,
    /// How far these records are behind the newest record of the shard.
    pub behind: Duration,
    /// The shards into which an ended shard was split or merged, if the source reports them. A child's
    /// [`begins`](Shard::begins) is 0 if the source does not report this number.
    pub children: Vec<Shard>,
}

/// A record as the stream stores it: a plain record or an aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "implementations of a source create these")]
pub struct RawRecord {
    /// The number that Kinesis assigned.
    pub sequence: SequenceNumber,
    /// The partition key, whose hash selects the shard.
    pub partition_key: Arc<str>,
    /// The data that the producer wrote.
    pub data: Bytes,
    /// The arrival time in milliseconds since 1970, if the source reports it.
    pub arrived: Option<u64>,
}

/// Reports that a request to a stream failed.
#[derive(Debug, Error)]
#[error("stream was not read")]
pub struct SourceError {
    kind: SourceErrorKind,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Classifies a [`SourceError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The iterator has expired, or is invalid.
    ExpiredIterator,
    /// The shard does not exist, or no longer exists.
    NoSuchShard,
    /// The stream does not exist.
    NoSuchStream,
    /// The request exceeded a rate limit.
    Throttled,
    /// The service rejected the credentials, or the credentials do not allow the operation.
    Denied,
    /// The source does not support the operation.
    Unsupported,
    /// The source rejected the request: the shard has no such position, or the time is in the future.
    Refused,
    /// The stream did not answer, gave an invalid answer, or returned an error that may be temporary.
    Unavailable,
}

impl SourceErrorKind {
    /// All kinds, to register them before the first event.
    pub const ALL: &'static [Self] = &[
        Self::ExpiredIterator,
        Self::NoSuchShard,
        Self::NoSuchStream,
        Self::Throttled,
        Self::Denied,
        Self::Unsupported,
        Self::Refused,
        Self::Unavailable,
    ];

    /// The name in lower case, for the label of a metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExpiredIterator => "expired_iterator",
            Self::NoSuchShard => "no_such_shard",
            Self::NoSuchStream => "no_such_stream",
            Self::Throttled => "throttled",
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

impl SourceError {
    /// Creates an error of `kind` with the cause `source`, an error or a text.
    pub fn new(
        kind: SourceErrorKind,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, source: source.into() }
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// Reports whether the request may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            SourceErrorKind::Throttled
                | SourceErrorKind::Unavailable
                | SourceErrorKind::ExpiredIterator
        )
    }
}

impl ShardIterator {
    /// Creates an iterator from the text that the source understands.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text that the source understands.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
