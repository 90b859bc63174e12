//! A simulated Kinesis stream for tests: in memory, deterministic, with the limits of Kinesis.
//!
//! Start here with [`SimStream`]. `stream` and `shard` hold the state. `limit` enforces the rate limits.
//! `fault` injects faults, and `push` is enhanced fan-out.

mod fault;
mod iterator;
mod limit;
mod number;
mod push;
mod shard;
mod stream;
mod time;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use self::fault::FaultInjector;
use self::push::Subscription;
use self::stream::{Children, Limits, Stream};
use self::time::Time;
use super::{Fetched, RawRecord, ReadFrom, ShardIterator, Source, SourceError};
use crate::shard::{Shard, ShardId, hash_key_of};

pub use self::fault::Faults;

/// Simulates a Kinesis stream in memory, for tests of processors and workers.
///
/// Enforces the read [limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html)
/// of a shard. These are five fetches, five iterators and 2 MB a second, and 10,000 records and 10 MB a
/// fetch. A burst of one second's amount is allowed. Iterators and subscriptions end after 5 minutes.
///
/// A new subscription replaces the previous subscription after 5 seconds. Before that, the stream rejects the
/// new subscription. [`try_put`](Self::try_put) enforces the write limits.
///
/// The stream uses tokio's clock, which a test can pause. The stream's [wall clock](Self::wall_clock) starts
/// at the same date in every run. Clones share the stream and its faults.
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
    faults: Arc<FaultInjector>,
    consumer: Arc<str>,
}

/// A record that was written to a [`SimStream`], and its shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimRecord {
    /// The shard that stores the record.
    pub shard: ShardId,
    /// The record as readers receive it.
    pub record: RawRecord,
}

struct Shared {
    born: Instant,
    stream: Mutex<Stream>,
    changed: watch::Sender<()>,
}

impl SimStream {
    /// Creates a stream with this number of shards, which cover equal parts of the hash keys.
    ///
    /// # Panics
    ///
    /// Panics if `shards` is 0.
    pub fn new(shards: u16) -> Self {
        assert!(shards > 0, "a stream has at least one shard");
        let stream = Mutex::new(Stream::new(shards, Time(Duration::ZERO)));
        let shared = Shared { born: tokio_now(), stream, changed: watch::Sender::new(()) };
        Self {
            shared: Arc::new(shared),
            faults: Arc::new(FaultInjector::new(0, Faults::default())),
            consumer: "consumer".into(),
        }
    }

    /// Creates another handle with these `faults`. The same seed causes the same faults for the same calls.
    /// Give each worker its own handle, so that the workers' faults are independent.
    #[must_use]
    pub fn with_faults(&self, seed: u64, faults: Faults) -> Self {
        Self { faults: Arc::new(FaultInjector::new(seed, faults)), ..self.clone() }
    }

    /// Creates a handle for the consumer `name`. Each consumer has one subscription to each shard.
    #[must_use]
    pub fn with_consumer(&self, name: impl Into<Arc<str>>) -> Self {
        Self { consumer: name.into(), ..self.clone() }
    }

    /// Makes the stream report no children at a shard's end, like most emulators.
    #[must_use]
    pub fn without_reported_children(self) -> Self {
        self.lock().behavior.children = Children::Unreported;
        self
    }

    /// Lists children later than their closed parents: `lag` after the split or merge.
    #[must_use]
    pub fn with_late_listing(self, lag: Duration) -> Self {
        self.lock().behavior.lag = lag;
        self
    }

    /// Disables all read and write limits.
    #[must_use]
    pub fn without_limits(self) -> Self {
        self.lock().behavior.limits = Limits::None;
        self
    }

    /// Changes the faults of this handle and its clones, from the next call on.
    pub fn set_faults(&self, faults: Faults) {
        self.faults.set(faults);
    }

    /// Returns the stream's time in milliseconds since 1970. The stream starts on 1 January 2025, 0:00 UTC.
    pub fn wall_clock(&self) -> u64 {
        self.now().millis_since_1970()
    }

    /// Writes a record to the shard of its partition key, without write limits.
    pub fn put(&self, partition_key: &str, data: impl Into<Bytes>) -> SimRecord {
        self.put_with_hash_key(partition_key, hash_key_of(partition_key), data)
    }

    /// Writes a record to the shard of `hash_key`, without write limits.
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

    /// Writes a record to the shard of its partition key, with the write limits. A shard accepts 1,000
    /// records and 1 MB (including partition keys) in any second. Records that other methods write do not
    /// count.
    ///
    /// # Errors
    ///
    /// [`Throttled`](crate::SourceErrorKind::Throttled) if the record exceeds a limit. The stream then does
    /// not write the record.
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

    /// Writes records, given as partition key and data, without write limits.
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

    /// Splits `shard` at `at`. The first child has the hash keys below `at`.
    ///
    /// # Errors
    ///
    /// [`NoSuchShard`](crate::SourceErrorKind::NoSuchShard) if the shard does not exist.
    /// [`Refused`](crate::SourceErrorKind::Refused) if the shard is closed, or has no hash keys on one side
    /// of `at`.
    pub fn split(&self, shard: &ShardId, at: u128) -> Result<(ShardId, ShardId), SourceError> {
        let now = self.now();
        let children = self.lock().split(shard, at, now)?;
        self.shared.changed.send_replace(());
        Ok(children)
    }

    /// Merges two adjacent shards, given in either order.
    ///
    /// # Errors
    ///
    /// [`NoSuchShard`](crate::SourceErrorKind::NoSuchShard) if a shard does not exist.
    /// [`Refused`](crate::SourceErrorKind::Refused) if a shard is closed, or the shards are not adjacent.
    pub fn merge(&self, one: &ShardId, other: &ShardId) -> Result<ShardId, SourceError> {
        let now = self.now();
        let child = self.lock().merge(one, other, now)?;
        self.shared.changed.send_replace(());
        Ok(child)
    }

    /// Removes the records that are older than `retention`, and closed shards without records.
    pub fn trim(&self, retention: Duration) {
        let now = self.now();
        self.lock().trim(retention, now);
    }

    /// Returns the open shards in the order of their creation, with shards that are not listed yet.
    pub fn open_shards(&self) -> Vec<Shard> {
        self.lock().open_shards()
    }

    /// Returns all records ever written, in order.
    pub fn everything_put(&self) -> Vec<SimRecord> {
        self.lock().everything_put().to_vec()
    }

    /// Returns all records ever written, by partition key, in the order in which workers must deliver them.
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
        self.shared.stream.lock()
    }
}

#[async_trait]
impl Source for SimStream {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        self.faults.inject().await?;
        Ok(self.lock().list(self.now()))
    }

    async fn iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, SourceError> {
        self.faults.inject().await?;
        self.lock().iterator(shard, from, self.now())
    }

    async fn fetch(&self, iterator: &ShardIterator, limit: u16) -> Result<Fetched, SourceError> {
        self.faults.inject().await?;
        let hidden = self.faults.hides_records();
        self.lock().fetch(iterator, limit, hidden, self.now())
    }

    async fn subscribe(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<BoxStream<'static, Result<Fetched, SourceError>>, SourceError> {
        self.faults.inject().await?;
        let (subscribed, begin) = self.lock().subscribe(shard, from, &self.consumer, self.now())?;
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
    #[expect(clippy::disallowed_methods, reason = "the stream's own clock; no lease depends on it")]
    Instant::now()
}
