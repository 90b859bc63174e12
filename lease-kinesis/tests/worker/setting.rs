//! Helpers for workers in paused time.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::Faulty;
use lease_core::store::{LeaseTable, LockStore};
use lease_kinesis::{
    Batch, Checkpointer, InitialPosition, Outcome, ProcessorFactory, RecordProcessor, Source,
    Worker, WorkerBuilder,
};
use lease_memory::MemoryStore;
use tokio::time::{sleep, timeout};

use crate::mode;

pub(crate) type Table = Faulty<MemoryStore>;

pub(crate) fn table() -> Table {
    Faulty::new(MemoryStore::new())
}

pub(crate) struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

pub(crate) fn worker(
    table: &Table,
    source: &(impl Source + Clone),
    factory: impl ProcessorFactory,
) -> WorkerBuilder {
    let worker = Worker::builder("shop", table.clone(), source.clone(), factory);
    mode::set(worker).with_initial_position(InitialPosition::TrimHorizon)
}

/// Evicts the holder of the first shard, which is the worker `name`.
pub(crate) async fn evict(table: &Table, name: &str) {
    let shard = "shop/shards/shardId-000000000000".parse().unwrap();
    let key = mode::evictable(&shard, name);
    let token = table.inner().holder(&key).await.unwrap().unwrap().token.unwrap();
    assert!(table.inner().evict(&key, &token.into()).await.unwrap());
}

pub(crate) async fn until(what: &str, limit: Duration, done: impl Fn() -> bool + Send + Sync) {
    let done = async {
        while !done() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(timeout(limit, done).await.is_ok(), "not within {limit:?}: {what}");
}

pub(crate) async fn checkpoint(table: &Table) -> String {
    let key = "shop/shards/shardId-000000000000".parse().unwrap();
    let row = table.inner().read(&key).await.unwrap().unwrap();
    row.attributes["checkpoint"].as_text().unwrap().to_owned()
}

/// This time is enough for the next tick and the next read.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// This time is enough for many retries.
pub(crate) const IN_THE_END: Duration = Duration::from_mins(5);
