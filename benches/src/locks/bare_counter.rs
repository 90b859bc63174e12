//! The baseline of a server's memory: a counter per key, the least that fencing tokens need.

use async_trait::async_trait;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;

use crate::lock::{Held, Lock};

/// Excludes no other client.
pub(crate) struct Counter<C>(C);

struct Counted;

impl Counter<MultiplexedConnection> {
    pub(crate) async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        Self(client.get_multiplexed_async_connection().await.unwrap())
    }
}

impl Counter<ClusterConnection> {
    pub(crate) async fn connect_cluster(urls: Vec<String>) -> Self {
        let client = ClusterClient::new(urls).unwrap();
        Self(client.get_async_connection().await.unwrap())
    }
}

#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync + 'static> Lock for Counter<C> {
    fn name(&self) -> &'static str {
        "bare INCR"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let mut increment = redis::cmd("INCR");
        let increment = increment.arg(key);
        increment.query_async::<u64>(&mut self.0.clone()).await.ok()?;
        Some(Box::new(Counted))
    }
}

#[async_trait]
impl Held for Counted {
    async fn free(self: Box<Self>) {}
}
