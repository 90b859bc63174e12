//! One shard of a stream in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::limit::{Bytes, Calls, MOST_BYTES, Puts};
use super::number::Number;
use super::stream::Time;
use crate::shard::{HashKeyRange, Shard, ShardId};
use crate::source::{RawRecord, ReadFrom, SourceError, SourceErrorKind};

#[derive(Debug)]
pub(super) struct SimShard {
    pub(super) shard: Shard,
    pub(super) made: Time,
    closed: Option<(Time, Number)>,
    first: Number,
    records: VecDeque<Kept>,
    pub(super) fetches: Calls,
    pub(super) iterators: Calls,
    pub(super) given: Bytes,
    pub(super) puts: Puts,
    /// The last subscription of each consumer.
    pub(super) subscribed: BTreeMap<Arc<str>, Subscribed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscribed {
    pub(super) at: Time,
    /// How many there were before it.
    pub(super) earlier: u64,
}

#[derive(Debug)]
struct Kept {
    number: Number,
    arrived: Time,
    record: RawRecord,
}

/// Records from some number on.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) records: Vec<RawRecord>,
    pub(super) bytes: usize,
    /// Where to read on.
    pub(super) next: Number,
    pub(super) behind: Duration,
    /// Whether there is nothing more, ever.
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
        self.records.push_back(Kept { number, arrived, record });
    }

    /// Forgets what arrived before `oldest`. Says whether nothing is left, and nothing can come.
    pub(super) fn trim(&mut self, oldest: Time) -> bool {
        self.records.retain(|kept| kept.arrived >= oldest);
        self.records.is_empty() && self.closed.is_some_and(|(closed, _)| closed < oldest)
    }

    /// The number from which on to read. `next` is the stream's next one.
    pub(super) fn place(
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
                    let text = format!("{sequence} is no number of shard {}", self.shard.id);
                    SourceError::new(SourceErrorKind::Refused, text)
                })
            }
            ReadFrom::Timestamp(at) if *at > now.millis_since_1970() => {
                let text = "that time is yet to come, by the stream's clock";
                Err(SourceError::new(SourceErrorKind::Refused, text))
            }
            ReadFrom::Timestamp(at) => {
                let found =
                    self.records.iter().find(|kept| kept.arrived.millis_since_1970() >= *at);
                Ok(found.map_or(next, |kept| kept.number))
            }
        }
    }

    fn has(&self, number: Number) -> bool {
        number >= self.first && self.closed.is_none_or(|(_, last)| number <= last)
    }

    /// Up to `most` records with `from` as the lowest number.
    pub(super) fn read(&self, from: Number, most: usize, now: Time) -> Found {
        let begin = self.records.partition_point(|kept| kept.number < from);
        let mut found = Found {
            records: Vec::new(),
            bytes: 0,
            next: from,
            behind: Duration::ZERO,
            ended: self.closed.is_some(),
        };
        for kept in self.records.range(begin..) {
            let bytes = found.bytes + kept.record.data.len() + kept.record.partition_key.len();
            let full = found.records.len() >= most || bytes > MOST_BYTES;
            // One record is always given: else one as large as that would never be read.
            if full && !found.records.is_empty() {
                found.ended = false;
                // More than none, since there is more.
                found.behind = now.since(kept.arrived).max(Duration::from_millis(1));
                break;
            }
            found.records.push(kept.record.clone());
            found.bytes = bytes;
            found.next = kept.number.next();
        }
        found
    }

    /// Nothing, though there may be something.
    pub(super) fn read_nothing(&self, from: Number, now: Time) -> Found {
        let unread = self.records.iter().find(|kept| kept.number >= from);
        let behind = unread.map_or(Duration::ZERO, |kept| now.since(kept.arrived));
        Found { records: Vec::new(), bytes: 0, next: from, behind, ended: false }
    }
}
