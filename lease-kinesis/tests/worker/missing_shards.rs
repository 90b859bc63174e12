//! Shards that a stream has no more.

use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Fetched, ReadFrom, Shard, ShardContext, ShardId, ShardIterator, SimStream, Source, SourceError,
    SourceErrorKind,
};
use tokio::time::sleep;

use crate::setting::{Idle, table, worker};

/// A stream that lists its shards, and knows none of them.
#[derive(Debug, Clone)]
struct Forgetful(SimStream);

#[async_trait]
impl Source for Forgetful {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        self.0.shards().await
    }

    async fn iterator(&self, _: &ShardId, _: &ReadFrom) -> Result<ShardIterator, SourceError> {
        Err(SourceError::new(SourceErrorKind::NoSuchShard, "as the test wants it"))
    }

    async fn fetch(&self, iterator: &ShardIterator, most: u16) -> Result<Fetched, SourceError> {
        self.0.fetch(iterator, most).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_gone_again_and_again_is_tried_ever_less_often() {
    let (table, source) = (table(), Forgetful(SimStream::new(1)));
    let worker = worker(&table, &source, |_: &ShardContext| Idle).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    sleep(Duration::from_mins(20)).await;

    let obtained = handle.status().counters.obtained;
    assert!((10..=30).contains(&obtained), "{obtained} times");
}
