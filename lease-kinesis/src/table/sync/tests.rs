//! Rows that are of no shard of the stream.

use async_trait::async_trait;
use lease_core::{Attributes, LeaseKey, LeaseTable};
use lease_memory::MemoryStore;

use super::*;
use crate::processor::{Outcome, RecordProcessor, ShardContext};
use crate::shard::HashKeyRange;
use crate::source::{Fetched, ReadFrom, ShardIterator, SourceError, SourceErrorKind};
use crate::told::Told;
use crate::{Batch, Checkpointer, SimStream, Worker};

struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

/// A stream of one open shard, that has dropped whatever was before it.
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
            return Err(SourceError::new(SourceErrorKind::NoSuchShard, "as the test wants it"));
        }
        self.records.iterator(&self.records.open_shards()[0].id, from).await
    }

    async fn fetch(&self, iterator: &ShardIterator, most: u16) -> Result<Fetched, SourceError> {
        self.records.fetch(iterator, most).await
    }
}

/// A table whose only row is of shard 5, which was read up to record 77.
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

const WARNED: &str = "a row is of no shard that the stream lists";

#[tokio::test(start_paused = true)]
async fn a_row_of_another_stream_stays_and_is_warned_of_once_with_its_checkpoint() {
    let (told, _listening) = Told::listen();
    let table = table().await;
    work(&table, OneShard::called("shardId-000000000002"));

    sleep(PATIENCE_WITH_STRAYS * 5).await;

    let row = table.read(&key()).await.unwrap().unwrap();
    assert_eq!(row.attributes["checkpoint"].as_text(), Some("77"));
    let log = told.text();
    let warned: Vec<_> = log.lines().filter(|line| line.contains(WARNED)).collect();
    assert!(matches!(warned[..], [once] if once.contains("77")), "{log}");
    let times = told.count("the stream has no such shard any more");
    assert!((11..=20).contains(&times), "{times} times in {log}");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_says_of_an_open_shard_that_it_was_read_is_warned_of_once() {
    let (told, _listening) = Told::listen();
    let table = Arc::new(MemoryStore::new());
    let row = Attributes::from([("checkpoint".to_owned(), "SHARD_END".into())]);
    assert!(table.create(&key(), &row).await.unwrap());
    work(&table, OneShard::called("shardId-000000000005"));

    sleep(PATIENCE_WITH_STRAYS * 5).await;

    let warned = "a shard is open and, says its row, read to its end";
    assert_eq!(told.count(warned), 1, "{}", told.text());
    assert!(table.read(&key()).await.unwrap().is_some(), "whose it is, nobody knows");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_the_stream_may_have_dropped_goes_only_after_a_long_time_and_a_warning() {
    let (told, _listening) = Told::listen();
    let table = table().await;
    work(&table, OneShard::called("shardId-000000000009"));

    sleep(PATIENCE_WITH_STRAYS * 9 / 10).await;
    assert!(table.read(&key()).await.unwrap().is_some());
    assert_eq!(told.count(WARNED), 1, "{}", told.text());

    sleep(Duration::from_mins(10)).await;
    assert!(table.read(&key()).await.unwrap().is_none(), "{}", told.text());
    assert_eq!(told.count(WARNED), 1, "{}", told.text());
}

#[tokio::test(start_paused = true)]
async fn a_row_that_was_made_for_another_start_is_told_by_its_shard() {
    for (time, times) in [(1_636_609_142_000_u64, 0), (1_636_609_142_000_000, 1)] {
        let (told, _listening) = Told::listen();
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

        let log = told.text();
        assert_eq!(told.count("shard obtained"), 1, "{log}");
        assert_eq!(told.count("its row says where it is begun with"), times, "{log}");
    }
}

/// A stream that there is not.
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
async fn what_nobody_mends_is_told_some_times() {
    let (told, _listening) = Told::listen();
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

    // The second has no name of its own, and looks at nothing.
    for what in [
        "shards not compared with their rows",
        "a row cannot be read: its shard is left alone",
        "another worker has this name",
    ] {
        let times = told.count(what);
        assert!((11..=20).contains(&times), "{what}: {times} times in {}", told.text());
    }
    // Each time with the reason.
    let reasons = told.count("there is no such stream");
    assert!(reasons >= told.count("shards not compared"), "{}", told.text());
    // And the shard of the row that is there.
    assert_eq!(told.count("seldom"), 4, "{}", told.text());
}
