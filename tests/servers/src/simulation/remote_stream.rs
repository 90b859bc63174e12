//! A simulated stream behind a network with latency.

use async_trait::async_trait;
use lease_core::conformance::Simulation;
use lease_kinesis::{
    Fetched, ReadFrom, Shard, ShardId, ShardIterator, SimStream, Source, SourceError,
};
use tokio::runtime::Handle;

/// A stream behind the simulation's network.
#[derive(Debug, Clone)]
pub struct RemoteStream {
    stream: SimStream,
    network: Handle,
}

impl RemoteStream {
    /// Makes a client of `stream` whose requests run on `network`.
    pub fn new(stream: SimStream, network: Handle) -> Self {
        Self { stream, network }
    }

    async fn request<T: Send + 'static>(
        &self,
        ask: impl Future<Output = Result<T, SourceError>> + Send + 'static,
    ) -> Result<T, SourceError> {
        let asked = self.network.spawn(async move {
            tokio::time::sleep(Simulation::LATENCY).await;
            ask.await
        });
        match asked.await {
            Ok(answer) => answer,
            Err(_ended) => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Source for RemoteStream {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        let stream = self.stream.clone();
        self.request(async move { stream.shards().await }).await
    }

    async fn iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, SourceError> {
        let (stream, shard, from) = (self.stream.clone(), shard.clone(), from.clone());
        self.request(async move { stream.iterator(&shard, &from).await }).await
    }

    async fn fetch(&self, iterator: &ShardIterator, limit: u16) -> Result<Fetched, SourceError> {
        let (stream, iterator) = (self.stream.clone(), iterator.clone());
        self.request(async move { stream.fetch(&iterator, limit).await }).await
    }
}
