//! A stream on a Kinesis in this process.

use std::net::SocketAddr;

use aws_sdk_kinesis::Client;
use lease_kinesis::{KinesisSource, Shard, Source};
use lease_test_servers::kinesis::Server;

use crate::producer::Producer;

pub(crate) struct Stream {
    server: Server,
    client: Client,
}

impl Stream {
    pub(crate) async fn of_shards(count: i32) -> Self {
        let server = Server::ferrokinesis().await;
        server.create_stream(NAME, count).await;
        let client = server.client();
        Self { server, client }
    }

    /// Where its Kinesis is.
    #[expect(clippy::allow_attributes, reason = "not every test that has this file asks")]
    #[allow(dead_code, reason = "not every test that has this file asks")]
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// A way to it that nobody else has.
    pub(crate) fn source(&self) -> KinesisSource {
        KinesisSource::new(&self.server.client(), NAME).with_consumer("shop")
    }

    /// Puts records until it is told to end.
    pub(crate) fn produce(&self) -> Producer {
        Producer::start(self.server.client(), NAME)
    }

    pub(crate) async fn shards(&self) -> Vec<Shard> {
        let mut shards = self.source().shards().await.unwrap();
        shards.sort_by_key(|shard| shard.hash_keys);
        shards
    }

    /// In the order of their hash keys.
    pub(crate) async fn open_shards(&self) -> Vec<Shard> {
        let shards = self.shards().await;
        shards.into_iter().filter(Shard::is_open).collect()
    }

    /// Into halves.
    pub(crate) async fn split(&self, shard: &Shard) {
        let (first, last) = (shard.hash_keys.first(), shard.hash_keys.last());
        let middle = first + (last - first) / 2;
        let request = self.client.split_shard().stream_name(NAME);
        let request = request.shard_to_split(shard.id.as_str());
        request.new_starting_hash_key(middle.to_string()).send().await.unwrap();
        self.server.settled(NAME).await;
    }

    pub(crate) async fn merge(&self, one: &Shard, other: &Shard) {
        let request = self.client.merge_shards().stream_name(NAME);
        let request = request.shard_to_merge(one.id.as_str());
        request.adjacent_shard_to_merge(other.id.as_str()).send().await.unwrap();
        self.server.settled(NAME).await;
    }
}

const NAME: &str = "orders";
