//! The state of a simulated stream, which its handles share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::SimRecord;
use super::iterator::IteratorPosition;
use super::limit::{MOST_FETCHES, MOST_ITERATORS, MOST_RECORDS};
use super::number::Number;
use super::shard::{Found, SimShard, Subscribed};
use super::time::Time;
use crate::shard::{HashKeyRange, Shard, ShardId};
use crate::source::{Fetched, RawRecord, ReadFrom, ShardIterator, SourceError, SourceErrorKind};

#[derive(Debug)]
pub(super) struct Stream {
    shards: BTreeMap<ShardId, SimShard>,
    next_shard: u64,
    next_number: Number,
    /// All records ever written, including removed records.
    put: Vec<SimRecord>,
    pub(super) behavior: Behavior,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Behavior {
    pub(super) limits: Limits,
    pub(super) children: Children,
    /// The time from the creation of a shard until lists contain the shard.
    pub(super) lag: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limits {
    Obeyed,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Children {
    Reported,
    Unreported,
}

impl Stream {
    pub(super) fn new(shards: u16, now: Time) -> Self {
        let behavior =
            Behavior { limits: Limits::Obeyed, children: Children::Reported, lag: Duration::ZERO };
        let mut stream = Self {
            shards: BTreeMap::new(),
            next_shard: 0,
            next_number: Number::FIRST,
            put: Vec::new(),
            behavior,
        };
        for hash_keys in even_parts(shards) {
            stream.add(Vec::new(), hash_keys, now);
        }
        stream
    }

    fn add(&mut self, parents: Vec<ShardId>, hash_keys: HashKeyRange, now: Time) -> ShardId {
        let id = id_of(self.next_shard);
        self.next_shard += 1;
        let first = self.take_number();
        let shard = SimShard::new(id.clone(), parents, hash_keys, first, now);
        self.shards.insert(id.clone(), shard);
        id
    }

    fn take_number(&mut self) -> Number {
        let number = self.next_number;
        self.next_number = number.next();
        number
    }

    pub(super) fn put(
        &mut self,
        partition_key: &str,
        hash_key: u128,
        data: Bytes,
        now: Time,
    ) -> SimRecord {
        let number = self.take_number();
        let shard = self.shard_of(hash_key);
        let record = RawRecord {
            sequence: number.sequence(),
            partition_key: partition_key.into(),
            data,
            arrived: Some(now.millis_since_1970()),
        };
        shard.put(number, now, record.clone());
        let record = SimRecord { shard: shard.shard.id.clone(), record };
        self.put.push(record.clone());
        record
    }

    pub(super) fn try_put(
        &mut self,
        partition_key: &str,
        hash_key: u128,
        data: Bytes,
        now: Time,
    ) -> Result<SimRecord, SourceError> {
        let limits = self.behavior.limits;
        let bytes = data.len() + partition_key.len();
        if limits == Limits::Obeyed && !self.shard_of(hash_key).puts.allow(now.0, bytes) {
            return Err(throttled(
                "more than 1,000 records or 1 MB written to a shard in a second",
            ));
        }
        Ok(self.put(partition_key, hash_key, data, now))
    }

    #[expect(clippy::expect_used, reason = "the open shards cover all hash keys")]
    fn shard_of(&mut self, hash_key: u128) -> &mut SimShard {
        let mut shards = self.shards.values_mut();
        shards
            .find(|shard| shard.shard.is_open() && shard.shard.hash_keys.contains(hash_key))
            .expect("an open shard")
    }

    pub(super) fn everything_put(&self) -> &[SimRecord] {
        &self.put
    }

    fn reshape(&mut self, parents: &[ShardId], parts: &[HashKeyRange], now: Time) -> Vec<ShardId> {
        for parent in parents {
            let last = self.take_number();
            if let Some(parent) = self.shards.get_mut(parent) {
                parent.close(last, now);
            }
        }
        parts.iter().map(|&part| self.add(parents.to_vec(), part, now)).collect()
    }

    pub(super) fn split(
        &mut self,
        shard: &ShardId,
        at: u128,
        now: Time,
    ) -> Result<(ShardId, ShardId), SourceError> {
        let whole = self.open(shard)?;
        let below = at.checked_sub(1).and_then(|last| HashKeyRange::new(whole.first(), last));
        let (Some(below), Some(above)) = (below, HashKeyRange::new(at, whole.last())) else {
            return Err(refused(format!("{at:#x} does not split {whole:?} into two")));
        };
        let mut children = self.reshape(std::slice::from_ref(shard), &[below, above], now);
        match (children.pop(), children.pop()) {
            (Some(above), Some(below)) => Ok((below, above)),
            _ => Err(refused("a split has two children")),
        }
    }

    pub(super) fn merge(
        &mut self,
        one: &ShardId,
        other: &ShardId,
        now: Time,
    ) -> Result<ShardId, SourceError> {
        let (one_keys, other_keys) = (self.open(one)?, self.open(other)?);
        let (low, high) = (one_keys.min(other_keys), one_keys.max(other_keys));
        let adjacent = low.last().checked_add(1) == Some(high.first());
        let (true, Some(whole)) = (adjacent, HashKeyRange::new(low.first(), high.last())) else {
            return Err(refused(format!("{low:?} and {high:?} are not adjacent")));
        };
        let parents = [one.clone(), other.clone()];
        let mut children = self.reshape(&parents, &[whole], now);
        children.pop().ok_or_else(|| refused("a merge has a child"))
    }

    fn open(&self, shard: &ShardId) -> Result<HashKeyRange, SourceError> {
        let found = self.shards.get(shard).ok_or_else(|| no_such(shard))?;
        if !found.shard.is_open() {
            return Err(refused(format!("shard {shard} is closed")));
        }
        Ok(found.shard.hash_keys)
    }

    pub(super) fn trim(&mut self, retention: Duration, now: Time) {
        let Some(oldest) = now.0.checked_sub(retention) else { return };
        self.shards.retain(|_, shard| !shard.trim(Time(oldest)));
    }

    pub(super) fn list(&self, now: Time) -> Vec<Shard> {
        let listed = self.shards.values().filter(|shard| {
            shard.shard.parents.is_empty() || now.since(shard.made) >= self.behavior.lag
        });
        listed.map(|shard| shard.shard.clone()).collect()
    }

    pub(super) fn open_shards(&self) -> Vec<Shard> {
        let shards = self.shards.values().map(|shard| &shard.shard);
        shards.filter(|shard| shard.is_open()).cloned().collect()
    }

    fn shard(&mut self, shard: &ShardId) -> Result<&mut SimShard, SourceError> {
        self.shards.get_mut(shard).ok_or_else(|| no_such(shard))
    }

    pub(super) fn iterator(
        &mut self,
        id: &ShardId,
        from: &ReadFrom,
        now: Time,
    ) -> Result<ShardIterator, SourceError> {
        let (next, limits) = (self.next_number, self.behavior.limits);
        let shard = self.shard(id)?;
        if limits == Limits::Obeyed && !shard.iterators.allow(now.0, MOST_ITERATORS) {
            return Err(throttled("more than 5 iterators a second"));
        }
        let next = shard.position(from, next, now)?;
        Ok(IteratorPosition { shard: id.clone(), next, created: now.0 }.iterator())
    }

    pub(super) fn fetch(
        &mut self,
        iterator: &ShardIterator,
        most: u16,
        hidden: bool,
        now: Time,
    ) -> Result<Fetched, SourceError> {
        let position = IteratorPosition::of(iterator, now.0)?;
        if !(1..=MOST_RECORDS).contains(&most) {
            return Err(refused("a fetch is limited to 1 to 10,000 records"));
        }
        let limits = self.behavior.limits;
        let shard = self.shard(&position.shard)?;
        if limits == Limits::Obeyed {
            if !shard.given.allow(now.0) {
                return Err(throttled("more than 2 MB a second"));
            }
            if !shard.fetches.allow(now.0, MOST_FETCHES) {
                return Err(throttled("more than 5 fetches a second"));
            }
        }
        let found = if hidden {
            shard.read_nothing(position.next, now)
        } else {
            shard.read(position.next, most.into(), now)
        };
        shard.given.give(now.0, found.bytes);
        Ok(self.fetched(position.shard, found, now))
    }

    fn fetched(&self, shard: ShardId, found: Found, now: Time) -> Fetched {
        let Found { records, next, behind, ended, .. } = found;
        if ended {
            return Fetched { records, next: None, behind, children: self.children(&shard) };
        }
        let next = IteratorPosition { shard, next, created: now.0 }.iterator();
        Fetched { records, next: Some(next), behind, children: Vec::new() }
    }

    fn children(&self, parent: &ShardId) -> Vec<Shard> {
        if self.behavior.children == Children::Unreported {
            return Vec::new();
        }
        let shards = self.shards.values().map(|shard| &shard.shard);
        shards.filter(|shard| shard.parents.contains(parent)).cloned().collect()
    }

    pub(super) fn subscribe(
        &mut self,
        shard: &ShardId,
        from: &ReadFrom,
        consumer: &Arc<str>,
        now: Time,
    ) -> Result<(Subscribed, Number), SourceError> {
        let (next, limits) = (self.next_number, self.behavior.limits);
        let shard = self.shard(shard)?;
        let earlier = shard.subscribed.get(consumer);
        let soon = earlier.is_some_and(|earlier| now.since(earlier.at) < BETWEEN_SUBSCRIPTIONS);
        if limits == Limits::Obeyed && soon {
            return Err(throttled("subscribed less than 5 seconds ago"));
        }
        let earlier = earlier.map_or(0, |earlier| earlier.earlier + 1);
        let begin = shard.position(from, next, now)?;
        let subscribed = Subscribed { at: now, earlier };
        shard.subscribed.insert(Arc::clone(consumer), subscribed);
        Ok((subscribed, begin))
    }

    /// Returns the next push, the number after its last record, and its size in bytes. `None` if a newer
    /// subscription has replaced this subscription.
    pub(super) fn push(
        &self,
        shard: &ShardId,
        consumer: &str,
        subscribed: Subscribed,
        from: Number,
        now: Time,
    ) -> Result<Option<(Fetched, Number, usize)>, SourceError> {
        let found = self.shards.get(shard).ok_or_else(|| no_such(shard))?;
        if found.subscribed.get(consumer) != Some(&subscribed) {
            return Ok(None);
        }
        let found = found.read(from, MOST_RECORDS.into(), now);
        let (next, bytes) = (found.next, found.bytes);
        Ok(Some((self.fetched(shard.clone(), found, now), next, bytes)))
    }
}

fn even_parts(count: u16) -> impl Iterator<Item = HashKeyRange> {
    let count = u128::from(count);
    // The width is 2¹²⁸ divided by `count`. For one part, 2¹²⁸ wraps to 0, but the last part's width is not
    // used.
    let width = (u128::MAX / count).wrapping_add((u128::MAX % count + 1) / count);
    (0..count).filter_map(move |part| {
        let first = part * width;
        let last = if part + 1 == count { u128::MAX } else { first + (width - 1) };
        HashKeyRange::new(first, last)
    })
}

#[expect(clippy::expect_used, reason = "a prefix and digits are a shard id")]
fn id_of(number: u64) -> ShardId {
    format!("shardId-{number:012}").parse().expect("an id")
}

fn refused(text: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Refused, text.into())
}

fn throttled(text: &'static str) -> SourceError {
    SourceError::new(SourceErrorKind::Throttled, text)
}

fn no_such(shard: &ShardId) -> SourceError {
    SourceError::new(SourceErrorKind::NoSuchShard, format!("there is no shard {shard}"))
}

/// This limit is in the documentation of
/// [`SubscribeToShard`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html).
const BETWEEN_SUBSCRIPTIONS: Duration = Duration::from_secs(5);
