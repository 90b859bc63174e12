//! Lists of rows that are late, incomplete or not answered.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_core::conformance::{Call, Fault};
use lease_core::{
    Attributes, Beat, Change, Claim, FencingToken, Freed, Grant, Heartbeat, Holder, LeaseKey,
    LeaseRecord, LeaseTable, Lessee, LockStore, Obtained, StoreError, Written,
};
use lease_kinesis::{
    Batch, Checkpointer, Checkpoints, InitialPosition, Outcome, RecordProcessor, ShardContext,
    SimStream, Worker,
};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::setting::{IN_THE_END, Idle, SOON, checkpoint, table, until, worker};

/// A table whose list lacks some rows, as one does whose pages are read while rows are made.
#[derive(Debug, Clone)]
struct Incomplete {
    store: MemoryStore,
    unlisted: Arc<Mutex<BTreeSet<LeaseKey>>>,
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

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }
}

#[async_trait]
impl LeaseTable for Incomplete {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
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

    async fn evict(&self, key: &LeaseKey, token: FencingToken) -> Result<bool, StoreError> {
        self.store.evict(key, token).await
    }
}

/// Notes the texts of all records, in order.
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

#[tokio::test(start_paused = true)]
async fn merged_shard_waits_for_a_parent_that_was_not_listed() {
    let stream = SimStream::new(2);
    let (store, texts) = (MemoryStore::new(), Texts::default());
    let table = Incomplete { store, unlisted: Arc::default() };
    let keys: [LeaseKey; 2] =
        [0, 1].map(|shard| format!("shop/shards/shardId-{shard:012}").parse().unwrap());
    let start = || {
        let processors = texts.clone();
        let factory = move |_: &ShardContext| processors.clone();
        Worker::builder("shop", table.clone(), stream.clone(), factory)
            .with_initial_position(InitialPosition::TrimHorizon)
            .build()
            .unwrap()
    };
    // The rows are made, and nobody reads.
    let first = start();
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
    table.unlisted.lock().unwrap().insert(keys[1].clone());

    let second = start();
    tokio::spawn(second.run());
    sleep(Duration::from_secs(50)).await;
    assert_eq!(*texts.0.lock().unwrap(), ["of a parent"], "the other parent is not read yet");
    table.unlisted.lock().unwrap().clear();

    until("all is read", IN_THE_END, || texts.0.lock().unwrap().len() == 3).await;
    let expected = ["of a parent", "of a parent", "of the child"];
    assert_eq!(*texts.0.lock().unwrap(), expected);
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

    assert!(throttled * 2 <= usual, "{throttled} reads, {usual} otherwise");
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
