//! Iterators of a simulated stream, whose text contains their whole state.

use std::time::Duration;

use super::number::Number;
use crate::shard::ShardId;
use crate::source::{ShardIterator, SourceError, SourceErrorKind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IteratorPosition {
    pub(super) shard: ShardId,
    pub(super) next: Number,
    pub(super) created: Duration,
}

impl IteratorPosition {
    pub(super) fn iterator(&self) -> ShardIterator {
        let Self { shard, next, created } = self;
        ShardIterator::new(format!("{}:{next}:{shard}", created.as_millis()))
    }

    /// Fails if the iterator has expired at `now`.
    pub(super) fn of(iterator: &ShardIterator, now: Duration) -> Result<Self, SourceError> {
        let Some(position) = Self::parse(iterator.as_str()) else {
            return Err(SourceError::new(
                SourceErrorKind::ExpiredIterator,
                "the iterator is not of this stream",
            ));
        };
        if now.saturating_sub(position.created) > LIFETIME {
            let text = "the iterator is older than 5 minutes";
            return Err(SourceError::new(SourceErrorKind::ExpiredIterator, text));
        }
        Ok(position)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let created = parts.next()?.parse().ok().map(Duration::from_millis)?;
        let next = Number::parse(parts.next()?)?;
        let shard = parts.next()?.parse().ok()?;
        Some(Self { shard, next, created })
    }
}

/// This limit is in the documentation of
/// [`GetShardIterator`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetShardIterator.html).
const LIFETIME: Duration = Duration::from_mins(5);
