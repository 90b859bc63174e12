//! Buckets: changes, collected per interval of time.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{FencingToken, InvalidInput};
use tracing::warn;

use crate::buffer::{Fenced, Intake, StopCause};
use crate::error::ServiceError;

mod memory;
#[cfg(feature = "redis")]
mod redis;

pub use memory::MemoryBuckets;
#[cfg(feature = "redis")]
pub use redis::RedisBuckets;

/// Collects the latest value of each key, in one bucket per interval of time.
///
/// A bucket is *closed* once its interval and a margin have passed. A closed bucket takes no
/// changes, so an exporter can remove exactly the entries that the exporter has read. The intake is
/// stopped until an operator [opens](Self::set_intake) the intake.
///
/// # To ensure correctness
///
/// Only the store's clock counts. The *marker* is the latest removed bucket. The store puts no
/// change into a bucket up to the marker, or into a bucket returned as closed, even if its clock
/// goes back. The exporter might never read such a change, or might remove it unread. Each call is
/// one atomic step. The store refuses a removal if the token is smaller than the largest token
/// seen.
///
/// # Cancel safety
///
/// The store may still apply a dropped call completely, as after an error.
#[async_trait]
pub trait BucketStore: fmt::Debug + Send + Sync + 'static {
    /// Puts `changes` into the current bucket. A new value replaces the key's earlier value in the
    /// bucket, even if no event can be made of the new value. `None` is a value that the producer
    /// could not read. The pipeline reports such values at the export.
    ///
    /// If the number of buckets has reached the cap, the store stops the intake until all buckets
    /// are removed.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown. Putting the same changes again is harmless.
    async fn put(&self, changes: &[(&str, Option<&str>)]) -> Result<PutIn, ServiceError>;

    /// Returns up to `most` closed buckets after the marker, oldest first. The store puts no more
    /// changes into the returned buckets.
    ///
    /// # Errors
    ///
    /// Fails if the store did not answer.
    async fn closed(&self, most: usize) -> Result<Vec<Bucket>, ServiceError>;

    /// Reads a piece of a closed bucket. `from` is the [`next`](Piece::next) of the previous piece,
    /// or `None` for the first piece. The entries of a piece are in the order of their keys. Pieces
    /// have no order.
    ///
    /// A piece ends with the entry that brings its size to `bytes` or more, by [`Entry::bytes`].
    /// Entries of earlier pieces may be removed before the next piece is read.
    ///
    /// # Errors
    ///
    /// Fails if the store did not answer, or if the bucket cannot be read.
    async fn read(
        &self,
        bucket: Bucket,
        from: Option<&str>,
        bytes: usize,
    ) -> Result<Piece, ServiceError>;

    /// Removes exactly `buckets`, and moves the marker to the last removed bucket unless the marker
    /// is later. Returns the number of buckets that existed.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown. Removing the same buckets again is harmless.
    async fn remove(
        &self,
        token: FencingToken,
        buckets: &[Bucket],
    ) -> Result<Fenced<u64>, ServiceError>;

    /// Removes exactly `keys` of a closed bucket, and the bucket itself if no key is left. The
    /// marker does not change. The exporter calls this for a bucket that is too large for one step,
    /// or that follows an unreadable bucket. Returns the number of keys that existed.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown. Removing the same keys again is harmless.
    async fn remove_keys(
        &self,
        token: FencingToken,
        bucket: Bucket,
        keys: &[&str],
    ) -> Result<Fenced<u64>, ServiceError>;

    /// Lists the buckets within `range`, oldest first, with the number of their keys.
    ///
    /// # Errors
    ///
    /// Fails if the store did not answer.
    async fn list(&self, range: RangeInclusive<Bucket>)
    -> Result<Vec<(Bucket, u64)>, ServiceError>;

    /// Returns the marker: the latest bucket that was passed to [`remove`](Self::remove).
    ///
    /// # Errors
    ///
    /// Fails if the store did not answer.
    async fn marker(&self) -> Result<Option<Bucket>, ServiceError>;

    /// Returns whether the store takes changes.
    ///
    /// # Errors
    ///
    /// Fails if the store did not answer.
    async fn intake(&self) -> Result<Intake, ServiceError>;

    /// Opens or stops the intake, and returns its previous state. A stop for lack of room does not
    /// replace an operator's stop.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError>;

    /// Removes all buckets and returns their number. Returns `None` if the intake is open.
    ///
    /// # Errors
    ///
    /// Fails if the outcome is unknown.
    async fn clear(&self) -> Result<Option<u64>, ServiceError>;
}

/// An interval of time, named by its start in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u64);

/// A key of a bucket, with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The bucket.
    pub bucket: Bucket,
    /// The key that changed.
    pub key: String,
    /// The new value, or `None` if it could not be read.
    pub value: Option<String>,
}

/// A part of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// The entries, in the order of their keys.
    pub entries: Vec<Entry>,
    /// The start of the next piece, in the store's own encoding. `None` after the last piece.
    pub next: Option<String>,
}

/// The result of [`BucketStore::put`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "changes that were not put are lost unless you keep them"]
#[expect(clippy::exhaustive_enums, reason = "a bucket has the changes, or none has")]
pub enum PutIn {
    /// The changes are in this bucket.
    Bucket(Bucket),
    /// The intake is stopped: no bucket has the changes.
    Stopped(StopCause),
}

/// How a store keeps buckets: interval, margin and cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketOptions {
    pub(crate) interval: u64,
    pub(crate) margin: u64,
    pub(crate) cap: u64,
}

impl BucketOptions {
    /// Sets the interval: 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30 or 60 seconds. Each minute starts
    /// with a new bucket.
    ///
    /// # Errors
    ///
    /// Fails if `interval` is any other length.
    pub fn new(interval: Duration) -> Result<Self, InvalidInput> {
        let seconds = interval.as_secs();
        // The last check divides by the interval, so the check for 0 is first.
        if seconds == 0 || interval.subsec_nanos() != 0 || 60 % seconds != 0 {
            return Err(InvalidInput::new(format!(
                "interval {interval:?} is out of range: whole seconds of which a minute is a \
                 multiple"
            )));
        }
        Ok(Self { interval: seconds, margin: 10, cap: 360 })
    }

    /// Closes a bucket `margin` after its interval, in whole seconds, rounded up. The default is 10
    /// s, longer than a request takes to arrive. The maximum is [`Bucket::MAX`] seconds. A longer
    /// margin counts as the maximum.
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        let seconds = margin.as_secs().saturating_add(u64::from(margin.subsec_nanos() > 0));
        self.margin = seconds.min(Bucket::MAX.0);
        self
    }

    /// Keeps up to `cap` buckets, 1 or more, and then stops the intake. The default is 360: half an
    /// hour of buckets of 5 s. Unreadable buckets count.
    ///
    /// # Errors
    ///
    /// Fails if `cap` is 0.
    pub fn with_cap(mut self, cap: u64) -> Result<Self, InvalidInput> {
        if cap == 0 {
            return Err(InvalidInput::new("a cap of 0 buckets is out of range: at least 1"));
        }
        self.cap = cap;
        Ok(self)
    }

    pub(crate) fn warn_of_stop(&self) {
        warn!(cap = self.cap, "bucket intake stopped until drained: cap reached");
    }

    /// The length of a bucket's interval.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval)
    }
}

impl Default for BucketOptions {
    /// Intervals of 5 s, a margin of 10 s, and a cap of 360 buckets.
    fn default() -> Self {
        Self { interval: 5, margin: 10, cap: 360 }
    }
}

impl Bucket {
    /// The first possible bucket.
    pub const MIN: Self = Self(0);

    /// The last possible bucket: the start of the year 9999.
    pub const MAX: Self = Self(253_370_764_800);

    /// The bucket that starts `seconds` after the start of 1970. The maximum is [`MAX`](Self::MAX).
    pub fn starting_at(seconds: u64) -> Self {
        Self(seconds.min(Self::MAX.0))
    }

    /// The start, in seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.0
    }

    /// The start as `YYYYMMDD HH:MM:SS` in UTC. The pipeline stamps events with this text.
    pub fn time_gen(self) -> String {
        let seconds = i64::try_from(self.0).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
        time.strftime("%Y%m%d %H:%M:%S").to_string()
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Entry {
    /// The `value` of `key` in `bucket`.
    pub fn new(bucket: Bucket, key: String, value: Option<String>) -> Self {
        Self { bucket, key, value }
    }

    /// The entry's size in a [piece](Piece), in bytes: key, value, and 100 bytes of overhead.
    pub fn bytes(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.value.as_ref().map_or(0, String::len)
    }
}

impl Piece {
    /// Creates a piece whose successor starts at `next`. For implementers of [`BucketStore`].
    pub fn new(mut entries: Vec<Entry>, next: Option<String>) -> Self {
        entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Self { entries, next }
    }
}

// `Arc` forwards every method: a default method must not replace the store's own method.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<T: BucketStore + ?Sized> BucketStore for Arc<T> {
    async fn put(&self, changes: &[(&str, Option<&str>)]) -> Result<PutIn, ServiceError> {
        (**self).put(changes).await
    }

    async fn closed(&self, most: usize) -> Result<Vec<Bucket>, ServiceError> {
        (**self).closed(most).await
    }

    async fn read(
        &self,
        bucket: Bucket,
        from: Option<&str>,
        bytes: usize,
    ) -> Result<Piece, ServiceError> {
        (**self).read(bucket, from, bytes).await
    }

    async fn remove(
        &self,
        token: FencingToken,
        buckets: &[Bucket],
    ) -> Result<Fenced<u64>, ServiceError> {
        (**self).remove(token, buckets).await
    }

    async fn remove_keys(
        &self,
        token: FencingToken,
        bucket: Bucket,
        keys: &[&str],
    ) -> Result<Fenced<u64>, ServiceError> {
        (**self).remove_keys(token, bucket, keys).await
    }

    async fn list(
        &self,
        range: RangeInclusive<Bucket>,
    ) -> Result<Vec<(Bucket, u64)>, ServiceError> {
        (**self).list(range).await
    }

    async fn marker(&self) -> Result<Option<Bucket>, ServiceError> {
        (**self).marker().await
    }

    async fn intake(&self) -> Result<Intake, ServiceError> {
        (**self).intake().await
    }

    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError> {
        (**self).set_intake(intake).await
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        (**self).clear().await
    }
}

const ENTRY_BYTES: usize = 100;

/// Changes are useless while no exporter runs. So only an operator opens the intake.
const AT_FIRST: Intake = Intake::Stopped(StopCause::Operator);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_that_does_not_divide_a_minute_is_refused() {
        for millis in [0, 500, 1_500, 7_000, 120_000] {
            let refused = BucketOptions::new(Duration::from_millis(millis)).unwrap_err();
            assert!(refused.to_string().ends_with("of which a minute is a multiple"), "{refused}");
        }
        for seconds in [1, 5, 10, 60] {
            assert!(BucketOptions::new(Duration::from_secs(seconds)).is_ok());
        }
    }

    #[tokio::test]
    async fn bucket_with_longest_margin_never_closes() {
        let options = BucketOptions::default().with_margin(Duration::MAX);
        let buckets = MemoryBuckets::new(options);
        buckets.set_intake(Intake::Open).await.unwrap();
        let put_in = buckets.put(&[("a", Some("1"))]).await.unwrap();
        assert!(matches!(put_in, PutIn::Bucket(_)), "{put_in:?}");

        assert_eq!(buckets.closed(usize::MAX).await.unwrap(), []);
    }

    #[test]
    fn stamp_is_the_start_of_the_bucket() {
        assert_eq!(Bucket::starting_at(1_700_000_005).time_gen(), "20231114 22:13:25");
        assert_eq!(Bucket::MAX.time_gen(), "99990101 00:00:00");
    }
}
