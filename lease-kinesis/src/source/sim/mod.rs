//! A Kinesis stream in memory, for tests: deterministic, and as strict as the real one.

mod fault;
mod limit;
mod number;
mod place;
mod push;
mod shard;
mod stream;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use tokio::sync::watch;
use tokio::time::Instant;

use self::fault::Weather;
use self::push::Subscription;
use self::stream::{Children, Limits, Stream, Time};
use super::{Fetched, RawRecord, ReadFrom, ShardIterator, Source, SourceError};
use crate::shard::{Shard, ShardId, hash_key_of};

pub use self::fault::Faults;

/// A Kinesis stream in memory: give it to a worker as its source, and test what the worker does.
///
/// It keeps the [limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html)
/// of reading, per shard: five fetches and five iterators a second, 2 MB a second (one second's
/// worth at once), 10,000 records and 10 MB a fetch; iterators that expire after 5 minutes;
/// subscriptions that end after 5 minutes, are refused within 5 seconds of the one before, and take
/// over from it later. Writing obeys its limits where it can say so, by [`try_put`](Self::try_put).
/// Its numbers are as long as those of AWS, and grow from parents to children.
///
/// All of its time is tokio's, so that a test with paused time runs through days in no time;
/// its [wall clock](Self::wall_clock) starts at the same date in every run. Clones share the
/// stream, and the way to it: [`with_faults`](Self::with_faults) makes a handle with a way of its
/// own.
///
/// # Examples
///
/// ```
/// use lease_kinesis::{ReadFrom, SimStream, Source, SourceError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), SourceError> {
/// let stream = SimStream::new(1);
/// let put = stream.put("customer 7", "one");
/// let (low, high) = stream.split(&put.shard, 1 << 127)?;
///
/// let iterator = stream.iterator(&put.shard, &ReadFrom::TrimHorizon).await?;
/// let fetched = stream.fetch(&iterator, 100).await?;
/// assert_eq!(fetched.records, [put.record]);
/// assert!(fetched.next.is_none(), "a shard that was split is at its end");
/// assert_eq!(fetched.children.len(), 2);
/// # let _ = (low, high);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SimStream {
    shared: Arc<Shared>,
    weather: Arc<Weather>,
    consumer: Arc<str>,
}

/// A record that was put into a [`SimStream`], and where it went.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimRecord {
    /// The shard that was open for it.
    pub shard: ShardId,
    /// What readers get.
    pub record: RawRecord,
}

struct Shared {
    born: Instant,
    stream: Mutex<Stream>,
    /// That something was put, reshaped or subscribed to.
    changed: watch::Sender<()>,
}

impl SimStream {
    /// A stream of `shards` that have equal parts of all hash keys.
    ///
    /// # Panics
    ///
    /// Where that is none.
    pub fn new(shards: u16) -> Self {
        assert!(shards > 0, "a stream has a shard");
        let stream = Mutex::new(Stream::new(shards, Time(Duration::ZERO)));
        let shared = Shared { born: tokio_now(), stream, changed: watch::Sender::new(()) };
        Self {
            shared: Arc::new(shared),
            weather: Arc::new(Weather::new(0, Faults::default())),
            consumer: "consumer".into(),
        }
    }

    /// Another handle on the same stream, on whose way there are `faults`: the same calls meet
    /// the same ones where the seed is the same.
    ///
    /// Give one to each worker: what one of them does, then does not change the others' luck.
    #[must_use]
    pub fn with_faults(&self, seed: u64, faults: Faults) -> Self {
        Self { weather: Arc::new(Weather::new(seed, faults)), ..self.clone() }
    }

    /// Another handle on the same stream, whose subscriptions are those of the consumer `name`:
    /// each consumer has one to each shard.
    #[must_use]
    pub fn with_consumer(&self, name: impl Into<Arc<str>>) -> Self {
        Self { consumer: name.into(), ..self.clone() }
    }

    /// Does not tell a shard's children at its end, as most emulators don't: they are to be found
    /// in the list of shards alone.
    #[must_use]
    pub fn without_children_told(self) -> Self {
        self.lock().manners.children = Children::Untold;
        self
    }

    /// Lists children only `lag` after their parents are listed as closed.
    #[must_use]
    pub fn with_late_listing(self, lag: Duration) -> Self {
        self.lock().manners.lag = lag;
        self
    }

    /// Answers however often and however much it is asked, and takes whatever is put.
    #[must_use]
    pub fn without_limits(self) -> Self {
        self.lock().manners.limits = Limits::None;
        self
    }

    /// Changes the faults on the way of this handle and its clones, from the next call on.
    pub fn set_faults(&self, faults: Faults) {
        self.weather.change(faults);
    }

    /// The stream's time in milliseconds since 1970: midnight of 1 January 2025, when it was made.
    pub fn wall_clock(&self) -> u64 {
        self.now().millis_since_1970()
    }

    /// Puts a record into the shard of its partition key, whatever the limits of writing.
    pub fn put(&self, partition_key: &str, data: impl Into<Bytes>) -> SimRecord {
        self.put_with_hash_key(partition_key, hash_key_of(partition_key), data)
    }

    /// Puts a record into the shard of `hash_key`, whatever its partition key.
    pub fn put_with_hash_key(
        &self,
        partition_key: &str,
        hash_key: u128,
        data: impl Into<Bytes>,
    ) -> SimRecord {
        let now = self.now();
        let put = self.lock().put(partition_key, hash_key, data.into(), now);
        self.shared.changed.send_replace(());
        put
    }

    /// Puts a record into the shard of its partition key, as a producer does: a shard takes 1,000
    /// records and 1 MB (partition keys included) in any second. What was put without limits does
    /// not count.
    ///
    /// # Errors
    ///
    /// [`Throttled`](crate::SourceErrorKind::Throttled), where that would be more, unless the stream
    /// is [without limits](Self::without_limits). Nothing is put then, and it may be tried again.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lease_kinesis::{SimStream, SourceErrorKind};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let stream = SimStream::new(1);
    /// for number in 0..1_000 {
    ///     assert!(stream.try_put("customer 7", number.to_string()).is_ok());
    /// }
    /// let error = stream.try_put("customer 7", "one more").unwrap_err();
    /// assert_eq!(error.kind(), SourceErrorKind::Throttled);
    /// # }
    /// ```
    pub fn try_put(
        &self,
        partition_key: &str,
        data: impl Into<Bytes>,
    ) -> Result<SimRecord, SourceError> {
        let (now, hash_key) = (self.now(), hash_key_of(partition_key));
        let put = self.lock().try_put(partition_key, hash_key, data.into(), now)?;
        self.shared.changed.send_replace(());
        Ok(put)
    }

    /// Puts many records at once, each given as its partition key and data, whatever the limits of
    /// writing.
    pub fn put_all<K, D>(&self, records: impl IntoIterator<Item = (K, D)>) -> Vec<SimRecord>
    where
        K: AsRef<str>,
        D: Into<Bytes>,
    {
        let now = self.now();
        let put = {
            let mut stream = self.lock();
            let records = records.into_iter().map(|(key, data)| {
                let key = key.as_ref();
                stream.put(key, hash_key_of(key), data.into(), now)
            });
            records.collect()
        };
        self.shared.changed.send_replace(());
        put
    }

    /// Splits `shard` into the hash keys below `at`, and the others.
    ///
    /// # Errors
    ///
    /// Where it is not there ([`NoSuchShard`](crate::SourceErrorKind::NoSuchShard)), is closed, or
    /// has no keys on both sides ([`Refused`](crate::SourceErrorKind::Refused)).
    pub fn split(&self, shard: &ShardId, at: u128) -> Result<(ShardId, ShardId), SourceError> {
        let now = self.now();
        let children = self.lock().split(shard, at, now)?;
        self.shared.changed.send_replace(());
        Ok(children)
    }

    /// Merges two shards that are beside each other, in either order.
    ///
    /// # Errors
    ///
    /// Where one is not there ([`NoSuchShard`](crate::SourceErrorKind::NoSuchShard)), is closed, or
    /// is not beside the other ([`Refused`](crate::SourceErrorKind::Refused)).
    pub fn merge(&self, one: &ShardId, other: &ShardId) -> Result<ShardId, SourceError> {
        let now = self.now();
        let child = self.lock().merge(one, other, now)?;
        self.shared.changed.send_replace(());
        Ok(child)
    }

    /// Removes the records that are older than `retention`, and closed shards that are left empty.
    /// Nothing is removed unless this is called.
    pub fn trim(&self, retention: Duration) {
        let now = self.now();
        self.lock().trim(retention, now);
    }

    /// The shards that are open, without any lag, in the order in which they were made.
    pub fn open_shards(&self) -> Vec<Shard> {
        self.lock().open_shards()
    }

    /// All that was ever put, in order, also what is trimmed.
    pub fn everything_put(&self) -> Vec<SimRecord> {
        self.lock().everything_put().to_vec()
    }

    /// All that was ever put, also what is trimmed: per partition key, in order. It is what a
    /// fleet of workers must have delivered, in the order in which it must have.
    pub fn put_by_partition_key(&self) -> BTreeMap<Arc<str>, Vec<RawRecord>> {
        let mut by_key: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for put in self.lock().everything_put() {
            by_key
                .entry(Arc::clone(&put.record.partition_key))
                .or_default()
                .push(put.record.clone());
        }
        by_key
    }

    fn now(&self) -> Time {
        Time(tokio_now().saturating_duration_since(self.shared.born))
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.shared.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Source for SimStream {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        self.weather.pass().await?;
        Ok(self.lock().list(self.now()))
    }

    async fn iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, SourceError> {
        self.weather.pass().await?;
        self.lock().iterator(shard, from, self.now())
    }

    async fn fetch(&self, iterator: &ShardIterator, limit: u16) -> Result<Fetched, SourceError> {
        self.weather.pass().await?;
        let hidden = self.weather.hides_records();
        self.lock().fetch(iterator, limit, hidden, self.now())
    }

    async fn subscribe(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<BoxStream<'static, Result<Fetched, SourceError>>, SourceError> {
        self.weather.pass().await?;
        let (subscribed, begin) = self.lock().subscribe(shard, from, &self.consumer, self.now())?;
        // So that the one before hears of it.
        self.shared.changed.send_replace(());
        Ok(Subscription::new(self.clone(), shard.clone(), subscribed, begin).pushes())
    }
}

impl fmt::Debug for SimStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStream")
            .field("open_shards", &self.open_shards())
            .finish_non_exhaustive()
    }
}

fn tokio_now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "the stream's own clock: no lease goes by it")]
    Instant::now()
}
