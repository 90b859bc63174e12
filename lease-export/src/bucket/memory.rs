//! Buckets in memory.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_core::store::{BootClock, Clock, Moment, micros_since_1970};
use parking_lot::{Mutex, MutexGuard};

use crate::bucket::{AT_FIRST, Bucket, BucketOptions, BucketStore, Entry, Piece, PutIn};
use crate::buffer::gate::Gate;
use crate::buffer::{Fenced, Intake, StopCause};
use crate::error::ServiceError;

/// Keeps buckets in memory, for one process. Clones share the buckets.
#[derive(Debug, Clone)]
pub struct MemoryBuckets {
    options: BucketOptions,
    clock: BootClock,
    /// The time of creation by the clock, and in seconds since 1970.
    born: (Moment, u64),
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug)]
struct Kept {
    buckets: BTreeMap<Bucket, BTreeMap<String, Option<String>>>,
    marker: Option<Bucket>,
    /// The last bucket that was returned as closed.
    sealed: Option<Bucket>,
    gate: Gate,
}

impl MemoryBuckets {
    /// Creates an empty store. Time starts at the wall-clock time and advances with [`BootClock`],
    /// so a test can pause the time.
    pub fn new(options: BucketOptions) -> Self {
        let clock = BootClock::new();
        let born = (clock.now(), micros_since_1970() / 1_000_000);
        let (buckets, gate) = (BTreeMap::new(), Gate::new(AT_FIRST));
        let kept = Kept { buckets, marker: None, sealed: None, gate };
        Self { options, clock, born, kept: Arc::new(Mutex::new(kept)) }
    }

    fn now(&self) -> u64 {
        let (moment, seconds) = self.born;
        seconds + self.clock.now().since(moment).as_secs()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

#[async_trait]
impl BucketStore for MemoryBuckets {
    async fn put(&self, changes: &[(&str, Option<&str>)]) -> Result<PutIn, ServiceError> {
        let interval = self.options.interval;
        let now = Bucket(self.now() / interval * interval);
        let kept = &mut *self.kept();
        if let Some(cause) = kept.gate.stopped(kept.buckets.is_empty()) {
            return Ok(PutIn::Stopped(cause));
        }
        let last = kept.marker.max(kept.sealed);
        let bucket = last.map_or(now, |Bucket(last)| now.max(Bucket(last + interval)));
        let is_new = !kept.buckets.contains_key(&bucket);
        if is_new && kept.buckets.len() as u64 >= self.options.cap {
            kept.gate.set(Intake::Stopped(StopCause::Emergency));
            self.options.warn_of_stop();
            return Ok(PutIn::Stopped(StopCause::Emergency));
        }
        let entries = kept.buckets.entry(bucket).or_default();
        for (key, value) in changes {
            entries.insert((*key).to_owned(), value.map(str::to_owned));
        }
        Ok(PutIn::Bucket(bucket))
    }

    async fn closed(&self, most: usize) -> Result<Vec<Bucket>, ServiceError> {
        let last = self.now().checked_sub(self.options.interval + self.options.margin);
        let kept = &mut *self.kept();
        let from = kept.marker.map_or(Bound::Unbounded, Bound::Excluded);
        // A sealed bucket stays closed, even if the clock goes back.
        let last = last.map(Bucket).max(kept.sealed);
        let buckets = kept.buckets.range((from, Bound::Unbounded)).map(|(bucket, _)| *bucket);
        let closed: Vec<_> =
            buckets.take_while(|bucket| Some(*bucket) <= last).take(most).collect();
        kept.sealed = kept.sealed.max(closed.last().copied());
        Ok(closed)
    }

    async fn read(
        &self,
        bucket: Bucket,
        from: Option<&str>,
        bytes: usize,
    ) -> Result<Piece, ServiceError> {
        let kept = self.kept();
        let start = from.map_or(Bound::Unbounded, Bound::Included);
        let of_bucket = kept.buckets.get(&bucket).into_iter();
        let mut rest = of_bucket.flat_map(|of| of.range::<str, _>((start, Bound::Unbounded)));
        let (mut entries, mut length) = (Vec::new(), 0);
        while length < bytes.max(1)
            && let Some((key, value)) = rest.next()
        {
            let entry = Entry::new(bucket, key.clone(), value.clone());
            length += entry.bytes();
            entries.push(entry);
        }
        Ok(Piece::new(entries, rest.next().map(|(key, _)| key.clone())))
    }

    async fn remove(
        &self,
        token: FencingToken,
        buckets: &[Bucket],
    ) -> Result<Fenced<u64>, ServiceError> {
        let kept = &mut *self.kept();
        if let Fenced::Stale { largest } = kept.gate.admits(token) {
            return Ok(Fenced::Stale { largest });
        }
        kept.marker = kept.marker.max(buckets.iter().max().copied());
        let there = buckets.iter().filter(|bucket| kept.buckets.remove(bucket).is_some());
        Ok(Fenced::Done(there.count() as u64))
    }

    async fn remove_keys(
        &self,
        token: FencingToken,
        bucket: Bucket,
        keys: &[&str],
    ) -> Result<Fenced<u64>, ServiceError> {
        let kept = &mut *self.kept();
        if let Fenced::Stale { largest } = kept.gate.admits(token) {
            return Ok(Fenced::Stale { largest });
        }
        let Some(entries) = kept.buckets.get_mut(&bucket) else { return Ok(Fenced::Done(0)) };
        let there = keys.iter().filter(|key| entries.remove(**key).is_some()).count();
        if entries.is_empty() {
            kept.buckets.remove(&bucket);
        }
        Ok(Fenced::Done(there as u64))
    }

    async fn list(
        &self,
        range: RangeInclusive<Bucket>,
    ) -> Result<Vec<(Bucket, u64)>, ServiceError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let kept = self.kept();
        let within = kept.buckets.range(range);
        Ok(within.map(|(bucket, entries)| (*bucket, entries.len() as u64)).collect())
    }

    async fn marker(&self) -> Result<Option<Bucket>, ServiceError> {
        Ok(self.kept().marker)
    }

    async fn intake(&self) -> Result<Intake, ServiceError> {
        Ok(self.kept().gate.intake())
    }

    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError> {
        Ok(self.kept().gate.set(intake))
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        let kept = &mut *self.kept();
        let is_stopped = kept.gate.intake() != Intake::Open;
        Ok(is_stopped.then(|| std::mem::take(&mut kept.buckets).len() as u64))
    }
}
