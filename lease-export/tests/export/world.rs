//! The setup of a test: leases, events, jobs and buckets, all on one Redis server or in memory.

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{LeaseTable, micros_since_1970};
use lease_core::{FencingToken, LeaseKey, LeaseOptions, Locker};
use lease_export::queue::{JobQueue, MemoryQueue, RedisQueue};
use lease_export::{
    Appended, Bucket, BucketOptions, BucketStore, Capacity, Entry, Event, EventBuffer, Exported,
    Exporter, Intake, Limits, MemoryBuckets, MemoryBuffer, MemorySink, Parts, RedisBuckets,
    RedisBuffer, RedisLink, Retries, Scheduled, Sink, StopCause, TableSwitch, Worked,
};
use lease_memory::MemoryStore;
use lease_redis::RedisStore;
use lease_test_servers::redis::{PATIENT, RedisServer, until};
use serde_json::json;

/// Runs each test in memory with paused time, and on a Redis server of its own.
macro_rules! everywhere {
    ($($story:ident)*) => {
        mod in_memory {
            $(
                #[tokio::test(start_paused = true)]
                async fn $story() {
                    super::$story(crate::world::World::in_memory()).await;
                }
            )*
        }
        mod on_redis {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $story() {
                    if let Some(world) = crate::world::World::on_redis().await {
                        super::$story(world).await;
                    }
                }
            )*
        }
    };
}
pub(crate) use everywhere;

pub(crate) struct World {
    pub(crate) sink: MemorySink,
    place: Place,
    capacity: Capacity,
    limits: Limits,
    passed: Duration,
}

enum Place {
    Memory { store: MemoryStore, buffer: MemoryBuffer, queue: MemoryQueue },
    Redis { server: RedisServer, store: RedisStore, link: RedisLink },
}

impl World {
    pub(crate) fn in_memory() -> Self {
        let place = Place::Memory {
            store: MemoryStore::new(),
            buffer: MemoryBuffer::new(Capacity::default()),
            queue: MemoryQueue::new(VISIBILITY),
        };
        Self::at(place)
    }

    pub(crate) async fn on_redis() -> Option<Self> {
        if !lease_test_servers::redis::available() {
            return None;
        }
        Some(Self::on(RedisServer::start()).await)
    }

    /// The test can advance the server's clock.
    pub(crate) async fn on_redis_with_clock() -> Option<Self> {
        Some(Self::on(RedisServer::with_clock_and(&[])?).await)
    }

    /// Advances the time to `since` after the start of the test, in whole seconds.
    pub(crate) async fn pass_until(&mut self, since: Duration) {
        let length = since.saturating_sub(self.passed);
        self.passed = since;
        match &self.place {
            Place::Memory { .. } => tokio::time::advance(length).await,
            Place::Redis { server, .. } => {
                set(server, i64::try_from(since.as_secs()).unwrap(), |now, aimed| now >= aimed);
            }
        }
    }

    async fn on(server: RedisServer) -> Self {
        let store = RedisStore::builder(server.url()).with_timeout(PATIENT).connect();
        let store = store.await.unwrap();
        let link = link(&server).await;
        Self::at(Place::Redis { server, store, link })
    }

    fn at(place: Place) -> Self {
        let limits = Limits::FIREHOSE;
        let sink = MemorySink::new(limits);
        Self { sink, place, capacity: Capacity::default(), limits, passed: Duration::ZERO }
    }

    pub(crate) fn with_capacity(mut self, capacity: Capacity) -> Self {
        self.capacity = capacity;
        if let Place::Memory { buffer, .. } = &mut self.place {
            *buffer = MemoryBuffer::new(capacity);
        }
        self
    }

    pub(crate) fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self.sink = MemorySink::new(limits);
        self
    }

    pub(crate) fn table(&self) -> Arc<dyn LeaseTable> {
        match &self.place {
            Place::Memory { store, .. } => Arc::new(store.clone()),
            Place::Redis { store, .. } => Arc::new(store.clone()),
        }
    }

    pub(crate) fn buffer(&self) -> Arc<dyn EventBuffer> {
        match &self.place {
            Place::Memory { buffer, .. } => Arc::new(buffer.clone()),
            Place::Redis { link, .. } => {
                Arc::new(RedisBuffer::new(link.clone(), "orders", self.capacity))
            }
        }
    }

    pub(crate) fn queue(&self) -> Arc<dyn JobQueue> {
        match &self.place {
            Place::Memory { queue, .. } => Arc::new(queue.clone()),
            Place::Redis { link, .. } => {
                Arc::new(RedisQueue::new(link.clone(), "orders", VISIBILITY))
            }
        }
    }

    pub(crate) fn locker(&self) -> Locker {
        let options = LeaseOptions::new(TTL).unwrap();
        Locker::new(self.table()).with_options(options)
    }

    pub(crate) fn exporter(&self) -> Exporter {
        self.exporter_to(Arc::new(self.sink.clone()))
    }

    pub(crate) fn exporter_to(&self, sink: Arc<dyn Sink>) -> Exporter {
        self.exporter_of(self.queue(), self.buffer(), sink)
    }

    pub(crate) fn exporter_of(
        &self,
        queue: Arc<dyn JobQueue>,
        buffer: Arc<dyn EventBuffer>,
        sink: Arc<dyn Sink>,
    ) -> Exporter {
        let locker = self.locker();
        let switch = TableSwitch::new("export/enabled".parse().unwrap(), &locker, self.table());
        let parts = Parts { switch: Arc::new(switch), queue, buffer, sink };
        let none = Retries::new(0, Duration::ZERO, Duration::ZERO).unwrap();
        Exporter::new(locker, key(), parts).with_retries(none).with_hand_over_wait(TTL).unwrap()
    }

    pub(crate) async fn enabled(&self) -> Exporter {
        let exporter = self.exporter();
        exporter.enable().await.unwrap();
        exporter
    }

    pub(crate) async fn append(&self, count: u64) {
        let events: Vec<_> = (1..=count).map(event).collect();
        let kept = self.buffer().append(&events).await.unwrap();
        assert_eq!(kept, Appended::Kept { dropped: 0 });
    }

    pub(crate) fn arrived(&self) -> Vec<u64> {
        let number = |id: &str| id.strip_prefix("event-").unwrap().parse().unwrap();
        self.sink.ids().iter().map(|id| number(id.as_str())).collect()
    }
}

pub(crate) async fn run(exporter: &Exporter) -> Exported {
    let scheduled = exporter.schedule_job().await.unwrap();
    assert!(matches!(scheduled, Scheduled::Enqueued(_)), "{scheduled:?}");
    match exporter.run_next_job(Duration::ZERO).await.unwrap() {
        Worked::Done(_, exported) => exported,
        other => panic!("{other:?}"),
    }
}

/// Buckets that each span one minute, with a clock that the test can set.
pub(crate) struct Minutes {
    pub(crate) buckets: Arc<dyn BucketStore>,
    clock: SetClock,
}

enum SetClock {
    Paused,
    Server { server: RedisServer, ahead: i64 },
}

impl Minutes {
    pub(crate) async fn in_memory(options: BucketOptions) -> Self {
        let buckets = Arc::new(MemoryBuckets::new(options));
        let mut minutes = Self { buckets, clock: SetClock::Paused };
        minutes.open().await;
        minutes.begin_a_minute(micros_since_1970() / 1_000_000).await;
        minutes
    }

    pub(crate) async fn on_redis(options: BucketOptions) -> Option<Self> {
        Self::on_redis_with(options, &[]).await
    }

    pub(crate) async fn on_redis_with(options: BucketOptions, server: &[&str]) -> Option<Self> {
        let server = RedisServer::with_clock_and(server)?;
        let link = link(&server).await;
        let buckets = Arc::new(RedisBuckets::new(link, "minutes", options));
        let mut minutes = Self { buckets, clock: SetClock::Server { server, ahead: 0 } };
        minutes.open().await;
        minutes.begin_a_minute(micros_since_1970() / 1_000_000).await;
        Some(minutes)
    }

    async fn open(&self) {
        let stopped = Intake::Stopped(StopCause::Operator);
        assert_eq!(self.buckets.set_intake(Intake::Open).await.unwrap(), stopped, "at first");
    }

    /// Advances the clock to one second after a full minute, so that no test crosses a minute by
    /// accident.
    async fn begin_a_minute(&mut self, now: u64) {
        self.pass(Duration::from_secs(61 - now % 60)).await;
    }

    /// `length` must be in whole seconds.
    pub(crate) async fn pass(&mut self, length: Duration) {
        match &mut self.clock {
            SetClock::Paused => tokio::time::advance(length).await,
            SetClock::Server { server, ahead } => {
                *ahead += i64::try_from(length.as_secs()).unwrap();
                set(server, *ahead, |now, aimed| now >= aimed);
            }
        }
    }

    /// `length` must be in whole seconds.
    pub(crate) fn go_back(&mut self, length: Duration) {
        match &mut self.clock {
            SetClock::Paused => panic!("a test in memory cannot set its clock back"),
            SetClock::Server { server, ahead } => {
                *ahead -= i64::try_from(length.as_secs()).unwrap();
                // Some seconds may have passed since the clock was set, but fewer than 30.
                set(server, *ahead, |now, aimed| now < aimed + 30);
            }
        }
    }
}

/// Waits until `server` uses the new time. The server reads the clock file for each command, but
/// the file may change with a delay.
fn set(server: &RedisServer, ahead: i64, is_set: impl Fn(i64, i64) -> bool) {
    server.set_clock(&format!("{ahead:+}"));
    let aimed = i64::try_from(micros_since_1970() / 1_000_000).unwrap() + ahead;
    let now = || server.command("EVAL \"return redis.call('TIME')[1]\" 0");
    until("the server uses its new clock", || {
        now().parse::<i64>().is_ok_and(|now| is_set(now, aimed))
    });
}

/// A slow machine may answer slowly, so the limit is a minute.
async fn link(server: &RedisServer) -> RedisLink {
    RedisLink::connect_with_timeout(&server.url(), Duration::from_secs(60)).await.unwrap()
}

macro_rules! everywhere_with_buckets {
    ($($story:ident)*) => {
        mod in_memory {
            $(
                #[tokio::test(start_paused = true)]
                async fn $story() {
                    let minutes = crate::world::Minutes::in_memory(crate::world::minutes()).await;
                    super::$story(crate::world::World::in_memory(), minutes).await;
                }
            )*
        }
        mod on_redis {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $story() {
                    let minutes = crate::world::Minutes::on_redis(crate::world::minutes()).await;
                    let world = crate::world::World::on_redis().await;
                    if let (Some(world), Some(minutes)) = (world, minutes) {
                        super::$story(world, minutes).await;
                    }
                }
            )*
        }
    };
}
pub(crate) use everywhere_with_buckets;

/// Each bucket spans one minute, and closes 10 s after its end.
pub(crate) fn minutes() -> BucketOptions {
    BucketOptions::new(MINUTE).unwrap().with_cap(5).unwrap()
}

pub(crate) async fn read_all(buckets: &dyn BucketStore, bucket: Bucket) -> Vec<Entry> {
    let piece = buckets.read(bucket, None, usize::MAX / 2).await.unwrap();
    assert_eq!(piece.next, None, "one read returns the whole bucket");
    piece.entries
}

pub(crate) fn event(number: u64) -> Event {
    let id = format!("event-{number}").parse().unwrap();
    Event::new(id, &json!({ "number": number })).unwrap()
}

pub(crate) fn key() -> LeaseKey {
    "export".parse().unwrap()
}

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

pub(crate) const TTL: Duration = Duration::from_secs(5);

/// Longer than a machine stalls, and shorter than the lease's ttl.
pub(crate) const VISIBILITY: Duration = Duration::from_secs(2);

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
