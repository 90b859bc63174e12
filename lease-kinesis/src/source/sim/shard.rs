//! One shard of a simulated stream.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::limit::{Bytes, Calls, MOST_BYTES, Puts};
use super::number::Number;
use super::time::Time;
use crate::shard::{HashKeyRange, Shard, ShardId};
use crate::source::{RawRecord, ReadFrom, SourceError, SourceErrorKind};

#[derive(Debug)]
pub(super) struct SimShard {
    pub(super) shard: Shard,
    pub(super) made: Time,
    closed: Option<(Time, Number)>,
    first: Number,
    records: VecDeque<StoredRecord>,
    pub(super) fetches: Calls,
    pub(super) iterators: Calls,
    pub(super) given: Bytes,
    pub(super) puts: Puts,
    pub(super) subscribed: BTreeMap<Arc<str>, Subscribed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscribed {
    pub(super) at: Time,
    pub(super) earlier: u64,
}

#[derive(Debug)]
struct StoredRecord {
    number: Number,
    arrived: Time,
    record: RawRecord,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) records: Vec<RawRecord>,
    pub(super) bytes: usize,
    pub(super) next: Number,
    pub(super) behind: Duration,
    pub(super) ended: bool,
}

impl SimShard {
    pub(super) fn new(
        id: ShardId,
        parents: Vec<ShardId>,
        hash_keys: HashKeyRange,
        first: Number,
        made: Time,
    ) -> Self {
        Self {
            shard: Shard { id, parents, hash_keys, begins: first.sequence(), ends: None },
            made,
            closed: None,
            first,
            records: VecDeque::new(),
            fetches: Calls::default(),
            iterators: Calls::default(),
            given: Bytes::default(),
            puts: Puts::default(),
            subscribed: BTreeMap::new(),
        }
    }

    pub(super) fn close(&mut self, last: Number, now: Time) {
        self.closed = Some((now, last));
        self.shard.ends = Some(last.sequence());
    }

    pub(super) fn put(&mut self, number: Number, arrived: Time, record: RawRecord) {
        self.records.push_back(StoredRecord { number, arrived, record });
    }

    /// Returns whether the shard is empty and was closed before `oldest`.
    pub(super) fn trim(&mut self, oldest: Time) -> bool {
        self.records.retain(|stored| stored.arrived >= oldest);
        self.records.is_empty() && self.closed.is_some_and(|(closed, _)| closed < oldest)
    }

    /// Returns the number at which a reader starts if it reads from `from`. `next` is the number of the stream's
    /// next record.
    pub(super) fn position(
        &self,
        from: &ReadFrom,
        next: Number,
        now: Time,
    ) -> Result<Number, SourceError> {
        match from {
            ReadFrom::TrimHorizon => Ok(self.first),
            ReadFrom::Latest => Ok(next),
            ReadFrom::At(sequence) => {
                let number = Number::of(sequence).filter(|&number| self.has(number));
                number.ok_or_else(|| {
                    let text =
                        format!("{sequence} is not a sequence number of shard {}", self.shard.id);
                    SourceError::new(SourceErrorKind::Refused, text)
                })
            }
            ReadFrom::Timestamp(at) if *at > now.millis_since_1970() => {
                let text = "the time is in the future, by the stream's clock";
                Err(SourceError::new(SourceErrorKind::Refused, text))
            }
            ReadFrom::Timestamp(at) => {
                let found =
                    self.records.iter().find(|stored| stored.arrived.millis_since_1970() >= *at);
                Ok(found.map_or(next, |stored| stored.number))
            }
        }
    }

    fn has(&self, number: Number) -> bool {
        number >= self.first && self.closed.is_none_or(|(_, last)| number <= last)
    }

    pub(super) fn read(&self, from: Number, most: usize, now: Time) -> Found {
        let begin = self.records.partition_point(|stored| stored.number < from);
        let mut found = Found {
            records: Vec::new(),
            bytes: 0,
            next: from,
            behind: Duration::ZERO,
            ended: self.closed.is_some(),
        };
        for stored in self.records.range(begin..) {
            let bytes = found.bytes + stored.record.data.len() + stored.record.partition_key.len();
            let full = found.records.len() >= most || bytes > MOST_BYTES;
            // The first record is always read, even if it is larger than the limit.
            if full && !found.records.is_empty() {
                found.ended = false;
                // Records remain, so `behind` must not be zero, even if they arrived in this millisecond.
                found.behind = now.since(stored.arrived).max(Duration::from_millis(1));
                break;
            }
            found.records.push(stored.record.clone());
            found.bytes = bytes;
            found.next = stored.number.next();
        }
        found
    }

    /// Simulates an empty answer of a shard that may have records.
    pub(super) fn read_nothing(&self, from: Number, now: Time) -> Found {
        let unread = self.records.iter().find(|stored| stored.number >= from);
        let behind = unread.map_or(Duration::ZERO, |stored| now.since(stored.arrived));
        Found { records: Vec::new(), bytes: 0, next: from, behind, ended: false }
    }
}
