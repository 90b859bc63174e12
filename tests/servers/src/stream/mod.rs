//! A stream of a Kinesis server in this process, and a producer of its records.

mod producer;

use std::net::SocketAddr;

use aws_sdk_kinesis::Client;
use lease_kinesis::{KinesisSource, Shard, Source};

pub use self::producer::{Producer, Put};
use crate::kinesis::Server;

/// The stream `orders` on a separate server.
#[derive(Debug)]
pub struct Stream {
    server: Server,
    client: Client,
}

impl Stream {
    /// Starts ferrokinesis, and creates a stream with `count` shards.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub async fn of_shards(count: i32) -> Self {
        let server = Server::ferrokinesis().await;
        server.create_stream(NAME, count).await;
        let client = server.client();
        Self { server, client }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Makes a source with a separate client.
    pub fn source(&self) -> KinesisSource {
        KinesisSource::new(&self.server.client(), NAME).with_consumer("shop")
    }

    /// Starts a producer.
    pub fn produce(&self) -> Producer {
        Producer::start(self.server.client(), NAME)
    }

    /// Lists all shards in the order of their hash keys.
    ///
    /// # Panics
    ///
    /// Panics if the server does not list the shards.
    pub async fn shards(&self) -> Vec<Shard> {
        let mut shards = self.source().shards().await.expect("a list of shards");
        shards.sort_by_key(|shard| shard.hash_keys);
        shards
    }

    /// Lists the open shards in the order of their hash keys.
    ///
    /// # Panics
    ///
    /// Panics if the server does not list the shards.
    pub async fn open_shards(&self) -> Vec<Shard> {
        let shards = self.shards().await;
        shards.into_iter().filter(Shard::is_open).collect()
    }

    /// Splits a shard into halves.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses the request.
    pub async fn split(&self, shard: &Shard) {
        let (first, last) = (shard.hash_keys.first(), shard.hash_keys.last());
        let middle = first + (last - first) / 2;
        let request = self.client.split_shard().stream_name(NAME);
        let request = request.shard_to_split(shard.id.as_str());
        let request = request.new_starting_hash_key(middle.to_string());
        request.send().await.expect("the shard is split");
        self.server.settled(NAME).await;
    }

    /// Merges two adjacent shards.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses the request.
    pub async fn merge(&self, one: &Shard, other: &Shard) {
        let request = self.client.merge_shards().stream_name(NAME);
        let request = request.shard_to_merge(one.id.as_str());
        let request = request.adjacent_shard_to_merge(other.id.as_str());
        request.send().await.expect("the shards are merged");
        self.server.settled(NAME).await;
    }
}

const NAME: &str = "orders";
