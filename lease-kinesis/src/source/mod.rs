//! How a stream is read, whatever it is: in AWS, or in a test.

#[cfg(feature = "aws")]
mod aws;
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
/// One source is one stream. A source asks once, and tells of each failure: pacing, retries and
/// the renewal of iterators belong to those who read through it.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Lists all shards, open and closed, over all pages, in any order.
    ///
    /// # Errors
    ///
    /// Where the stream could not say. Part of the shards is never an answer.
    async fn shards(&self) -> Result<Vec<Shard>, SourceError>;

    /// A place to read `shard` from.
    ///
    /// # Errors
    ///
    /// [`SourceErrorKind::NoSuchShard`], where the shard has been removed with the last of its
    /// records; others where the stream could not say.
    async fn iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, SourceError>;

    /// Reads up to `limit` records (1 to 10,000) from `iterator` on.
    ///
    /// # Errors
    ///
    /// [`SourceErrorKind::ExpiredIterator`], after which another is asked for;
    /// [`SourceErrorKind::Throttled`], after which one waits.
    async fn fetch(&self, iterator: &ShardIterator, limit: u16) -> Result<Fetched, SourceError>;

    /// Has the records of `shard` pushed: enhanced fan-out. The stream of answers ends after some
    /// minutes, and is asked for again from where it ended.
    ///
    /// The default has no such way: sources that have one, override it.
    ///
    /// # Errors
    ///
    /// [`SourceErrorKind::Unsupported`], where the source has no such way;
    /// [`SourceErrorKind::Throttled`], where somebody subscribed a moment ago.
    async fn subscribe(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<BoxStream<'static, Result<Fetched, SourceError>>, SourceError> {
        let _ = (shard, from);
        Err(SourceError::new(SourceErrorKind::Unsupported, "this source pushes no records"))
    }
}

/// Where to begin to read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the places that Kinesis knows")]
pub enum ReadFrom {
    /// The record with this number, or the next after it.
    At(SequenceNumber),
    /// The first record that arrived at this time or later, in milliseconds since 1970.
    Timestamp(u64),
    /// The oldest record that is kept.
    TrimHorizon,
    /// The next record that arrives.
    Latest,
}

/// A place in a shard, in the words of the source; good for some minutes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardIterator(Arc<str>);

/// What was read at once.
#[derive(Debug, Clone, Default)]
#[expect(clippy::exhaustive_structs, reason = "those who write a source make these")]
pub struct Fetched {
    /// The records, in order. None may mean that there are none yet, or that the search for them
    /// goes on from `next`.
    pub records: Vec<RawRecord>,
    /// Where to go on; `None` at the end of a shard that is closed. Of what was pushed, it is the
    /// sequence number to subscribe from when the subscription has ended; another text says no more
    /// than that there is more.
    pub next: Option<ShardIterator>,
    /// How far these are behind the newest record.
    pub behind: Duration,
    /// Into what the shard was split or merged, at its end. Empty where the source does not tell;
    /// their first numbers are 0 where it does not tell those.
    pub children: Vec<Shard>,
}

/// A record as the stream has it: what a producer put, which may be an aggregate of several.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "those who write a source make these")]
pub struct RawRecord {
    /// The number that Kinesis gave it.
    pub sequence: SequenceNumber,
    /// What decides the shard.
    pub partition_key: Arc<str>,
    /// What was put.
    pub data: Bytes,
    /// When it arrived, in milliseconds since 1970, where that is told.
    pub arrived: Option<u64>,
}

/// A stream did not say what it was asked.
#[derive(Debug, Error)]
#[error("stream was not read")]
pub struct SourceError {
    kind: SourceErrorKind,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Why a stream did not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The iterator is too old, or is none.
    ExpiredIterator,
    /// There is no such shard, or no longer.
    NoSuchShard,
    /// There is no such stream.
    NoSuchStream,
    /// Too much was asked for.
    Throttled,
    /// The stream refuses these credentials, or this operation to them.
    Denied,
    /// The source has no such way.
    Unsupported,
    /// The source refuses what it was asked: a place that the shard does not have, a time that is
    /// yet to come.
    Refused,
    /// The stream did not answer, or not in time.
    Unavailable,
}

impl SourceError {
    /// An error of `kind`, caused by `source`: an error, or a text that says what to do.
    pub fn new(
        kind: SourceErrorKind,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, source: source.into() }
    }

    /// Why the stream did not say.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// Whether asking again later may help.
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
    /// The place that `text` names to the source.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text by which the source knows it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
