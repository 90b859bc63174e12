//! Shards that have a row, but no longer exist in the stream.

use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Fetched, ReadFrom, Shard, ShardContext, ShardId, ShardIterator, SimStream, Source, SourceError,
    SourceErrorKind,
};
use tokio::time::sleep;

use crate::setting::{Idle, table, worker};

#[derive(Debug, Clone)]
struct WithoutShards(SimStream);

#[async_trait]
impl Source for WithoutShards {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        self.0.shards().await
    }

    async fn iterator(&self, _: &ShardId, _: &ReadFrom) -> Result<ShardIterator, SourceError> {
        Err(SourceError::new(SourceErrorKind::NoSuchShard, "injected by the test"))
    }

    async fn fetch(&self, iterator: &ShardIterator, most: u16) -> Result<Fetched, SourceError> {
        self.0.fetch(iterator, most).await
    }
}

#[tokio::test(start_paused = true)]
async fn missing_shard_is_tried_with_backoff() {
    let (table, source) = (table(), WithoutShards(SimStream::new(1)));
    let worker = worker(&table, &source, |_: &ShardContext| Idle).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    sleep(Duration::from_mins(20)).await;

    let obtained = handle.status().counters.obtained;
    assert!((10..=30).contains(&obtained), "{obtained} times");
}
