//! Iterators of a stream in memory: all that they mean is in their text.

use std::time::Duration;

use super::number::Number;
use crate::shard::ShardId;
use crate::source::{ShardIterator, SourceError, SourceErrorKind};

/// From which number on which shard is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: ShardId,
    pub(super) next: Number,
    /// When this was said, by the stream's own time.
    pub(super) said: Duration,
}

impl Place {
    pub(super) fn iterator(&self) -> ShardIterator {
        let Self { shard, next, said } = self;
        ShardIterator::new(format!("{}:{next}:{shard}", said.as_millis()))
    }

    /// What `iterator` means, where it is not too old at `now`.
    pub(super) fn of(iterator: &ShardIterator, now: Duration) -> Result<Self, SourceError> {
        let Some(place) = Self::parse(iterator.as_str()) else {
            return Err(SourceError::new(SourceErrorKind::ExpiredIterator, "no iterator of this"));
        };
        if now.saturating_sub(place.said) > LIFE {
            let text = "the iterator is older than 5 minutes";
            return Err(SourceError::new(SourceErrorKind::ExpiredIterator, text));
        }
        Ok(place)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let said = parts.next()?.parse().ok().map(Duration::from_millis)?;
        let next = Number::parse(parts.next()?)?;
        let shard = parts.next()?.parse().ok()?;
        Some(Self { shard, next, said })
    }
}

/// As [`GetShardIterator`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetShardIterator.html)
/// says.
const LIFE: Duration = Duration::from_mins(5);
