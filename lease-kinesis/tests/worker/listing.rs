//! Listings of rows that are late, incomplete or unanswered.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_core::conformance::{Call, Fault};
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, LeaseRecord, LeaseTable, LockStore, Obtained,
    Sessions,
};
use lease_core::{Attributes, Change, GrantId, Holder, LeaseKey, Lessee, StoreError, Written};
use lease_kinesis::{
    Batch, Checkpointer, Checkpoints, InitialPosition, Outcome, RecordProcessor, ShardContext,
    SimStream, Worker,
};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::mode;
use crate::setting::{IN_THE_END, Idle, SOON, checkpoint, table, until, worker};

/// The list lacks some rows, as if they were created while the list was read.
#[derive(Debug, Clone)]
struct Incomplete {
    store: MemoryStore,
    unlisted: Arc<Mutex<BTreeSet<LeaseKey>>>,
    is_silent: Arc<AtomicBool>,
}

impl Incomplete {
    fn new() -> Self {
        Self { store: MemoryStore::new(), unlisted: Arc::default(), is_silent: Arc::default() }
    }
}

#[async_trait]
impl LockStore for Incomplete {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.obtain(claim).await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.store.holder(key).await
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.store.evict(key, grant).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.store.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        self.store.sessions()
    }
}

#[async_trait]
impl LeaseTable for Incomplete {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        if self.is_silent.load(Ordering::SeqCst) && self.unlisted.lock().unwrap().contains(key) {
            std::future::pending::<()>().await;
        }
        self.store.read(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let unlisted = self.unlisted.lock().unwrap().clone();
        let is_listed = move |record: &Result<LeaseRecord, StoreError>| {
            let is_listed = record.as_ref().is_ok_and(|record| !unlisted.contains(&record.key));
            std::future::ready(is_listed)
        };
        self.store.list(prefix).filter(is_listed).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        self.store.create(key, attributes).await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        self.store.update(grant, change).await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.store.transfer(grant, to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.store.delete(grant).await
    }
}

#[derive(Clone, Default)]
struct Texts(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl RecordProcessor for Texts {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let texts = batch.records.iter().map(|record| String::from_utf8_lossy(&record.data).into());
        self.0.lock().unwrap().extend(texts);
        checkpointer.checkpoint().await.into()
    }
}

async fn merged(stream: &SimStream, texts: &Texts) -> Incomplete {
    let table = Incomplete::new();
    let first = reader(&table, stream, texts);
    let handle = first.handle();
    let running = tokio::spawn(first.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 2).await;
    handle.stop();
    running.await.unwrap().unwrap();
    let shards = stream.open_shards();
    for shard in &shards {
        let hash_key = shard.hash_keys.first();
        stream.put_with_hash_key("key", hash_key, "of a parent");
    }
    stream.merge(&shards[0].id, &shards[1].id).unwrap();
    stream.put("key", "of the child");
    let key = format!("shop/shards/{}", shards[1].id).parse().unwrap();
    table.unlisted.lock().unwrap().insert(key);
    table
}

fn reader(table: &Incomplete, stream: &SimStream, texts: &Texts) -> Worker {
    let processors = texts.clone();
    let factory = move |_: &ShardContext| processors.clone();
    mode::set(Worker::builder("shop", table.clone(), stream.clone(), factory))
        .with_initial_position(InitialPosition::TrimHorizon)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn merged_shard_waits_for_a_parent_that_was_not_listed() {
    let (stream, texts) = (SimStream::new(2), Texts::default());
    let table = merged(&stream, &texts).await;

    tokio::spawn(reader(&table, &stream, &texts).run());
    sleep(Duration::from_secs(50)).await;
    assert_eq!(*texts.0.lock().unwrap(), ["of a parent"], "the other parent is not read yet");
    table.unlisted.lock().unwrap().clear();

    until("all is read", IN_THE_END, || texts.0.lock().unwrap().len() == 3).await;
    let expected = ["of a parent", "of a parent", "of the child"];
    assert_eq!(*texts.0.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn worker_continues_while_read_of_parent_hangs() {
    let (stream, texts) = (SimStream::new(2), Texts::default());
    let table = merged(&stream, &texts).await;
    let worker = reader(&table, &stream, &texts);
    let handle = worker.handle();
    tokio::spawn(worker.run());
    // The child now has a row, and waits for the unlisted parent.
    sleep(Duration::from_secs(50)).await;
    table.is_silent.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(50)).await;

    let ticks = handle.status().counters.ticks;
    sleep(Duration::from_mins(1)).await;
    assert!(handle.status().counters.ticks > ticks, "the worker still lists the rows");
}

#[tokio::test(start_paused = true)]
async fn end_of_shard_continues_after_read_without_answer() {
    let (stream, texts) = (SimStream::new(2), Texts::default());
    let table = merged(&stream, &texts).await;
    table.is_silent.store(true, Ordering::SeqCst);
    tokio::spawn(reader(&table, &stream, &texts).run());
    sleep(Duration::from_secs(50)).await;
    assert_eq!(*texts.0.lock().unwrap(), ["of a parent"], "the other parent is not read yet");

    // The table answers new reads from now on. Earlier reads never get an answer.
    table.is_silent.store(false, Ordering::SeqCst);
    sleep(Duration::from_secs(50)).await;
    table.unlisted.lock().unwrap().clear();

    until("all is read", IN_THE_END, || texts.0.lock().unwrap().len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn throttled_table_is_listed_less_often() {
    let (table, stream) = (table(), SimStream::new(1));
    let worker = worker(&table, &stream, |_: &ShardContext| Idle).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(30)).await;
    let reads_in_two_minutes = async || {
        let before = table.calls(Call::Read);
        sleep(Duration::from_mins(2)).await;
        table.calls(Call::Read) - before
    };
    let usual = reads_in_two_minutes().await;

    table.every(Call::Read, Fault::Fail);
    let throttled = reads_in_two_minutes().await;
    table.heal();

    assert!(throttled * 2 <= usual, "{throttled} throttled reads, {usual} usual reads");
    let ticks = handle.status().counters.ticks;
    sleep(SOON).await;
    assert!(handle.status().counters.ticks > ticks, "the table is listed again within a ttl");
}

#[tokio::test(start_paused = true)]
async fn last_batch_before_a_quiet_time_is_checkpointed_when_due() {
    let (table, stream) = (table(), SimStream::new(1));
    let worker = worker(&table, &stream, |_: &ShardContext| Idle);
    let every = Checkpoints::Every(Duration::from_mins(1));
    let worker = worker.with_checkpoints(every).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    for number in 0..2 {
        sleep(Duration::from_secs(10)).await;
        stream.put("key", number.to_string());
        sleep(Duration::from_secs(30)).await;
        let written = checkpoint(&table).await;
        let last = stream.everything_put().pop().unwrap().record.sequence;
        assert_ne!(written, last.as_str(), "not due yet");

        sleep(Duration::from_secs(35)).await;

        assert_eq!(checkpoint(&table).await, last.as_str());
    }
}
