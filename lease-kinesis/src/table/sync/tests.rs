//! Rows that belong to no shard of the stream.

use async_trait::async_trait;
use lease_core::store::LeaseTable;
use lease_core::{Attributes, LeaseKey};
use lease_memory::MemoryStore;
use lease_test_servers::warnings::Warnings;

use super::*;
use crate::processor::{Outcome, RecordProcessor, ShardContext};
use crate::shard::HashKeyRange;
use crate::source::{Fetched, ReadFrom, ShardIterator, SourceError, SourceErrorKind};
use crate::{Batch, Checkpointer, SimStream, Worker};

struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

/// A stream with one open shard, whose earlier shards are dropped.
#[derive(Debug, Clone)]
struct OneShard {
    shard: ShardId,
    records: SimStream,
}

impl OneShard {
    fn called(shard: &str) -> Self {
        Self { shard: shard.parse().unwrap(), records: SimStream::new(1) }
    }
}

#[async_trait]
impl Source for OneShard {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        let begins = "1".parse().unwrap();
        let (id, hash_keys) = (self.shard.clone(), HashKeyRange::ALL);
        Ok(vec![Shard { id, parents: Vec::new(), hash_keys, begins, ends: None }])
    }

    async fn iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, SourceError> {
        if *shard != self.shard {
            return Err(SourceError::new(SourceErrorKind::NoSuchShard, "injected by the test"));
        }
        self.records.iterator(&self.records.open_shards()[0].id, from).await
    }

    async fn fetch(&self, iterator: &ShardIterator, most: u16) -> Result<Fetched, SourceError> {
        self.records.fetch(iterator, most).await
    }
}

async fn table() -> Arc<MemoryStore> {
    let table = Arc::new(MemoryStore::new());
    let row = Attributes::from([("checkpoint".to_owned(), "77".into())]);
    assert!(table.create(&key(), &row).await.unwrap());
    table
}

fn key() -> LeaseKey {
    "shop/shards/shardId-000000000005".parse().unwrap()
}

fn work(table: &Arc<MemoryStore>, source: OneShard) {
    let worker = Worker::builder("shop", Arc::clone(table), source, |_: &ShardContext| Idle);
    tokio::spawn(worker.build().unwrap().run());
}

const WARNED: &str = "row belongs to no listed shard";

#[tokio::test(start_paused = true)]
async fn row_of_another_stream_stays_and_is_logged_once() {
    let (log, _listening) = Warnings::listen_from(tracing::Level::INFO);
    let table = table().await;
    work(&table, OneShard::called("shardId-000000000002"));

    sleep(STRAY_RETENTION * 5).await;

    let row = table.read(&key()).await.unwrap().unwrap();
    assert_eq!(row.attributes["checkpoint"].as_text(), Some("77"));
    let text = log.text();
    let warned: Vec<_> = text.lines().filter(|line| line.contains(WARNED)).collect();
    assert!(matches!(warned[..], [once] if once.contains("77")), "{text}");
    let times = log.count("the stream no longer has the shard");
    assert!((11..=20).contains(&times), "{times} times in {text}");
}

#[tokio::test(start_paused = true)]
async fn open_shard_with_ended_row_is_logged_once() {
    let (log, _listening) = Warnings::listen_from(tracing::Level::INFO);
    let table = Arc::new(MemoryStore::new());
    let row = Attributes::from([("checkpoint".to_owned(), "SHARD_END".into())]);
    assert!(table.create(&key(), &row).await.unwrap());
    work(&table, OneShard::called("shardId-000000000005"));

    sleep(STRAY_RETENTION * 5).await;

    let warned = "row of an open shard says that it was read to its end";
    assert_eq!(log.count(warned), 1, "{}", log.text());
    assert!(table.read(&key()).await.unwrap().is_some(), "the row is not removed");
}

#[tokio::test(start_paused = true)]
async fn stray_row_is_removed_after_retention_and_warning() {
    let (log, _listening) = Warnings::listen_from(tracing::Level::INFO);
    let table = table().await;
    work(&table, OneShard::called("shardId-000000000009"));

    sleep(STRAY_RETENTION * 9 / 10).await;
    assert!(table.read(&key()).await.unwrap().is_some());
    assert_eq!(log.count(WARNED), 1, "{}", log.text());

    sleep(Duration::from_mins(10)).await;
    assert!(table.read(&key()).await.unwrap().is_none(), "{}", log.text());
    assert_eq!(log.count(WARNED), 1, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn row_of_another_initial_position_is_logged() {
    for (time, times) in [(1_636_609_142_000_u64, 0), (1_636_609_142_000_000, 1)] {
        let (log, _listening) = Warnings::listen_from(tracing::Level::INFO);
        let table = Arc::new(MemoryStore::new());
        let row = Attributes::from([
            ("checkpoint".to_owned(), "AT_TIMESTAMP".into()),
            ("checkpointTimestamp".to_owned(), time.into()),
        ]);
        assert!(table.create(&key(), &row).await.unwrap());
        let factory = |_: &ShardContext| Idle;
        let stream = OneShard::called("shardId-000000000005");
        let worker = Worker::builder("shop", table, stream, factory)
            .with_initial_position(InitialPosition::AtTimestamp(1_636_609_142_000));
        tokio::spawn(worker.build().unwrap().run());

        sleep(Duration::from_mins(1)).await;

        let text = log.text();
        assert_eq!(log.count("shard obtained"), 1, "{text}");
        let warnings = log.count("the row of an unread shard has another initial position");
        assert_eq!(warnings, times, "{text}");
    }
}

#[derive(Debug, Clone)]
struct NoStream;

#[async_trait]
impl Source for NoStream {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        Err(SourceError::new(SourceErrorKind::Refused, "there is no such stream"))
    }

    async fn iterator(&self, _: &ShardId, _: &ReadFrom) -> Result<ShardIterator, SourceError> {
        Err(SourceError::new(SourceErrorKind::NoSuchShard, "there is no such stream"))
    }

    async fn fetch(&self, _: &ShardIterator, _: u16) -> Result<Fetched, SourceError> {
        Err(SourceError::new(SourceErrorKind::NoSuchShard, "there is no such stream"))
    }
}

#[tokio::test(start_paused = true)]
async fn lasting_failures_are_logged_rarely() {
    let (log, _listening) = Warnings::listen_from(tracing::Level::INFO);
    let table = table().await;
    let odd = Attributes::from([("checkpoint".to_owned(), "nowhere".into())]);
    assert!(table.create(&"shop/shards/shardId-7".parse().unwrap(), &odd).await.unwrap());
    for _ in 0..2 {
        let factory = |_: &ShardContext| Idle;
        let worker = Worker::builder("shop", Arc::clone(&table), NoStream, factory);
        let worker = worker.with_name("me".parse().unwrap());
        tokio::spawn(worker.build().unwrap().run());
    }

    sleep(Duration::from_hours(1)).await;

    // The second worker has the first worker's name, so it obtains no row and lists no rows.
    for what in [
        "sync of shards failed",
        "row cannot be read: its shard is skipped",
        "the worker's own row is held",
    ] {
        let times = log.count(what);
        assert!((11..=20).contains(&times), "{what}: {times} times in {}", log.text());
    }
    let reasons = log.count("there is no such stream");
    assert!(reasons >= log.count("sync of shards failed"), "{}", log.text());
    // Three messages are about the failures above, and the fourth is about the existing row.
    assert_eq!(log.count("rarely"), 4, "{}", log.text());
}
