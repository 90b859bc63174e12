//! Buckets in this process.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use lease_core::{BootClock, Clock, FencingToken, Moment, micros_since_1970};

use crate::error::ServiceError;
use crate::export::bucket::{Bucket, BucketOptions, BucketStore, Entry, PutIn};
use crate::export::buffer::{Fenced, Intake, StopCause};

/// Keeps buckets in this process. Clones share them.
#[derive(Debug, Clone)]
pub struct MemoryBuckets {
    options: BucketOptions,
    clock: BootClock,
    /// A moment of the clock, and the seconds since 1970 then.
    born: (Moment, u64),
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug)]
struct Kept {
    buckets: BTreeMap<Bucket, BTreeMap<String, Option<String>>>,
    marker: Option<Bucket>,
    largest: Option<FencingToken>,
    intake: Intake,
}

impl MemoryBuckets {
    /// No buckets yet, by the wall clock as it is now, and then by [`BootClock`]: so a test's
    /// paused time is theirs.
    pub fn new(options: BucketOptions) -> Self {
        let clock = BootClock::new();
        let born = (clock.now(), micros_since_1970() / 1_000_000);
        let kept =
            Kept { buckets: BTreeMap::new(), marker: None, largest: None, intake: Intake::Open };
        Self { options, clock, born, kept: Arc::new(Mutex::new(kept)) }
    }

    fn now(&self) -> u64 {
        let (moment, seconds) = self.born;
        seconds + self.clock.now().since(moment).as_secs()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl BucketStore for MemoryBuckets {
    async fn put(&self, changes: &[(&str, Option<&str>)]) -> Result<PutIn, ServiceError> {
        let interval = self.options.interval;
        let now = Bucket(self.now() / interval * interval);
        let kept = &mut *self.kept();
        if kept.intake == Intake::Stopped(StopCause::Emergency) && kept.buckets.is_empty() {
            kept.intake = Intake::Open;
        }
        if let Intake::Stopped(cause) = kept.intake {
            return Ok(PutIn::Stopped(cause));
        }
        let after_marker = kept.marker.map_or(now, |Bucket(marker)| Bucket(marker + interval));
        let bucket = now.max(after_marker);
        let is_new = !kept.buckets.contains_key(&bucket);
        if is_new && kept.buckets.len() as u64 >= self.options.cap {
            kept.intake = Intake::Stopped(StopCause::Emergency);
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
        let kept = self.kept();
        let from = kept.marker.map_or(Bound::Unbounded, Bound::Excluded);
        let closed = kept.buckets.range((from, Bound::Unbounded)).map(|(bucket, _)| *bucket);
        Ok(closed
            .take_while(|bucket| last.is_some_and(|last| bucket.0 <= last))
            .take(most)
            .collect())
    }

    async fn read(&self, bucket: Bucket) -> Result<Vec<Entry>, ServiceError> {
        let kept = self.kept();
        let entries = kept.buckets.get(&bucket).into_iter().flatten();
        Ok(entries.map(|(key, value)| Entry::new(bucket, key.clone(), value.clone())).collect())
    }

    async fn remove(
        &self,
        token: FencingToken,
        buckets: &[Bucket],
    ) -> Result<Fenced<u64>, ServiceError> {
        let kept = &mut *self.kept();
        if let Some(largest) = kept.largest
            && token < largest
        {
            return Ok(Fenced::Stale { largest });
        }
        kept.largest = Some(token);
        kept.marker = kept.marker.max(buckets.iter().max().copied());
        let there = buckets.iter().filter(|bucket| kept.buckets.remove(bucket).is_some());
        Ok(Fenced::Done(there.count() as u64))
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
        Ok(self.kept().intake)
    }

    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError> {
        let kept = &mut *self.kept();
        let before = kept.intake;
        if intake != Intake::Stopped(StopCause::Emergency) || before == Intake::Open {
            kept.intake = intake;
        }
        Ok(before)
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        let kept = &mut *self.kept();
        if kept.intake == Intake::Open {
            return Ok(None);
        }
        let count = kept.buckets.len() as u64;
        kept.buckets.clear();
        Ok(Some(count))
    }
}
