//! Changes collected by the time at which they happened, until that time is over.

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
/// A bucket is *closed* once its interval and a margin have passed: nothing is put into it any more.
/// So what was read is exactly what may be removed. The intake is stopped
/// until somebody [opens](Self::set_intake) it: nothing is collected for nobody.
///
/// # To ensure correctness
///
/// Time is that of the store. Nothing is put into a bucket at or before the marker, nor at or before
/// one that was once told to be closed, whatever the store's clock does: otherwise what comes late
/// would never be read, or be removed unread. Each call is one atomic step; removing is refused to a
/// token smaller than the largest seen.
#[async_trait]
pub trait BucketStore: fmt::Debug + Send + Sync + 'static {
    /// Puts `changes` into the bucket of this moment; a key that is in it already gets the new
    /// value, also where no event can be made of that. `None` stands for a value that could not be read any more: it is reported when the
    /// bucket is.
    ///
    /// Where there are as many buckets as there may be, the intake is stopped, until all were
    /// removed.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown. Putting the same again is harmless.
    async fn put(&self, changes: &[(&str, Option<&str>)]) -> Result<PutIn, ServiceError>;

    /// The oldest closed buckets after the marker, oldest first, `most` of them. From now on nothing
    /// is put into them, also if the clock goes back.
    ///
    /// # Errors
    ///
    /// Where the store could not say.
    async fn closed(&self, most: usize) -> Result<Vec<Bucket>, ServiceError>;

    /// Reads a piece of a closed bucket: the first, or the one that starts at `from`, the
    /// [`next`](Piece::next) of the piece before it. The entries of a piece are in the order of their
    /// keys; pieces are in any order.
    ///
    /// A piece ends once its entries have `bytes` bytes by [`Entry::bytes`], or a few entries later.
    /// Entries of earlier pieces may be removed before the next piece is read.
    ///
    /// # Errors
    ///
    /// Where the store could not say.
    async fn read(
        &self,
        bucket: Bucket,
        from: Option<&str>,
        bytes: usize,
    ) -> Result<Piece, ServiceError>;

    /// Removes exactly `buckets`, and moves the marker to the last of them if it is before that.
    /// Says how many were there.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown. Removing the same again is harmless.
    async fn remove(
        &self,
        token: FencingToken,
        buckets: &[Bucket],
    ) -> Result<Fenced<u64>, ServiceError>;

    /// Removes exactly `keys` of a closed bucket, and the bucket itself where it has no others; leaves
    /// the marker where it is: for one that is too large to be moved at once, or comes after one that
    /// could not be read. Says how many were there.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown. Removing the same again is harmless.
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
    /// Where the store could not say.
    async fn list(&self, range: RangeInclusive<Bucket>)
    -> Result<Vec<(Bucket, u64)>, ServiceError>;

    /// The latest bucket that was removed after it was read.
    ///
    /// # Errors
    ///
    /// Where the store could not say.
    async fn marker(&self) -> Result<Option<Bucket>, ServiceError>;

    /// Whether changes are taken in.
    ///
    /// # Errors
    ///
    /// Where the store could not say.
    async fn intake(&self) -> Result<Intake, ServiceError>;

    /// Opens or stops the intake. A stop for lack of room leaves one that is stopped as it is. Says
    /// how it was before.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError>;

    /// Removes everything, if the intake is stopped; says how many buckets there were, and `None`
    /// where it is open.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn clear(&self) -> Result<Option<u64>, ServiceError>;
}

/// An interval of time, named by its beginning: seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u64);

/// A key of a bucket, and its value then.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Where it was put.
    pub bucket: Bucket,
    /// What has changed.
    pub key: String,
    /// To what; `None` where that could not be read.
    pub value: Option<String>,
}

/// A part of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// Its entries, in the order of their keys.
    pub entries: Vec<Entry>,
    /// Where the next piece starts, in the store's own words; `None` after the last one.
    pub next: Option<String>,
}

/// What became of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "changes that were not put are lost unless you keep them"]
#[expect(clippy::exhaustive_enums, reason = "they are in a bucket, or the intake is stopped")]
pub enum PutIn {
    /// They are in this bucket.
    Bucket(Bucket),
    /// The intake is stopped: none is in any bucket.
    Stopped(StopCause),
}

/// How buckets are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketOptions {
    pub(crate) interval: u64,
    pub(crate) margin: u64,
    pub(crate) cap: u64,
}

impl BucketOptions {
    /// Buckets of `interval`: 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30 or 60 seconds, so that a minute
    /// begins with a bucket.
    ///
    /// # Errors
    ///
    /// Where `interval` is another.
    pub fn new(interval: Duration) -> Result<Self, InvalidInput> {
        let seconds = interval.as_secs();
        // First whether it is 0: one cannot divide by that.
        if seconds == 0 || interval.subsec_nanos() != 0 || 60 % seconds != 0 {
            return Err(InvalidInput::new(format!(
                "interval {interval:?} is out of range: whole seconds of which a minute is a \
                 multiple"
            )));
        }
        Ok(Self { interval: seconds, margin: 10, cap: 360 })
    }

    /// Closes a bucket `margin` after its interval, in whole seconds, rounded up; 10 s by default,
    /// as the earlier exporter did: by then, requests that were on their way have arrived. A longer
    /// one than [`Bucket::MAX`] has seconds counts as that.
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        let seconds = margin.as_secs().saturating_add(u64::from(margin.subsec_nanos() > 0));
        self.margin = seconds.min(Bucket::MAX.0);
        self
    }

    /// Keeps up to `cap` buckets, then stops the intake; 1 or more, 360 by default: half an hour of
    /// 5 s each. One that cannot be read counts, since it takes room, and somebody has to see to it.
    ///
    /// # Errors
    ///
    /// Where `cap` is 0.
    pub fn with_cap(mut self, cap: u64) -> Result<Self, InvalidInput> {
        if cap == 0 {
            return Err(InvalidInput::new("a cap of 0 buckets keeps nothing: at least 1"));
        }
        self.cap = cap;
        Ok(self)
    }

    /// Logs that the intake was stopped just now, since there are as many buckets as there may be.
    pub(crate) fn warn_of_stop(&self) {
        warn!(
            cap = self.cap,
            "buckets take nothing in until they are drained: their cap is reached"
        );
    }

    /// How long a bucket's interval is.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval)
    }
}

impl Default for BucketOptions {
    /// Buckets of 5 s, as the earlier exporter had.
    fn default() -> Self {
        Self { interval: 5, margin: 10, cap: 360 }
    }
}

impl Bucket {
    /// The first one.
    pub const MIN: Self = Self(0);

    /// After all others: the beginning of the year 9999.
    pub const MAX: Self = Self(253_370_764_800);

    /// The bucket that begins `seconds` after the beginning of 1970; at most [`MAX`](Self::MAX).
    pub fn starting_at(seconds: u64) -> Self {
        Self(seconds.min(Self::MAX.0))
    }

    /// When it begins, in seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.0
    }

    /// When it begins, as `YYYYMMDD HH:MM:SS` in UTC: what events are stamped with.
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
    /// `key` with `value`, as it was put into `bucket`.
    pub fn new(bucket: Bucket, key: String, value: Option<String>) -> Self {
        Self { bucket, key, value }
    }

    /// Its size in a [piece](Piece): that of its key and its value, and 100 bytes, about what it takes
    /// in memory beside them.
    pub fn bytes(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.value.as_ref().map_or(0, String::len)
    }
}

impl Piece {
    /// A piece of `entries`, followed by the one that starts at `next`: for those who write stores.
    pub fn new(mut entries: Vec<Entry>, next: Option<String>) -> Self {
        entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Self { entries, next }
    }
}

// A forwarded trait must not fall back to a default by accident.
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

/// Nobody would send what is collected before export was enabled.
const AT_FIRST: Intake = Intake::Stopped(StopCause::Operator);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_checked_before_anything_is_divided_by_it() {
        for millis in [0, 500, 1_500, 7_000, 120_000] {
            let refused = BucketOptions::new(Duration::from_millis(millis)).unwrap_err();
            assert!(refused.to_string().ends_with("of which a minute is a multiple"), "{refused}");
        }
        for seconds in [1, 5, 10, 60] {
            assert!(BucketOptions::new(Duration::from_secs(seconds)).is_ok());
        }
    }

    #[tokio::test]
    async fn buckets_with_the_longest_margin_never_close() {
        let options = BucketOptions::default().with_margin(Duration::MAX);
        let buckets = MemoryBuckets::new(options);
        buckets.set_intake(Intake::Open).await.unwrap();
        let put_in = buckets.put(&[("a", Some("1"))]).await.unwrap();
        assert!(matches!(put_in, PutIn::Bucket(_)), "{put_in:?}");

        assert_eq!(buckets.closed(usize::MAX).await.unwrap(), []);
    }

    #[test]
    fn a_stamp_is_the_beginning_of_the_bucket() {
        assert_eq!(Bucket::starting_at(1_700_000_005).time_gen(), "20231114 22:13:25");
        assert_eq!(Bucket::MAX.time_gen(), "99990101 00:00:00");
    }
}
