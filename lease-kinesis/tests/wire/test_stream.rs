//! The stream under test, and the operations that scenarios need.

#![cfg_attr(
    not(feature = "aws"),
    expect(
        unused_variables,
        clippy::unnecessary_wraps,
        clippy::unused_async,
        reason = "only a stream on a server needs them"
    )
)]

use std::sync::Arc;
use std::time::Duration;

use lease_kinesis::{
    RawRecord, ReadFrom, SequenceNumber, Shard, ShardId, ShardIterator, SimStream, Source,
};
use tokio::time::sleep;

#[cfg(feature = "aws")]
use self::wire::Wire;

pub(crate) struct TestStream {
    pub(crate) source: Arc<dyn Source>,
    stream: Stream,
}

enum Stream {
    Sim(SimStream),
    #[cfg(feature = "aws")]
    Wire(Wire),
}

impl TestStream {
    pub(crate) fn sim() -> Self {
        let stream = SimStream::new(3);
        let source = Arc::new(stream.clone());
        Self { source, stream: Stream::Sim(stream) }
    }

    pub(crate) async fn shards(&self) -> Vec<Shard> {
        let mut shards = self.source.shards().await.unwrap();
        shards.sort_by(|one, other| one.begins.cmp(&other.begins).then(one.id.cmp(&other.id)));
        shards
    }

    pub(crate) async fn shard(&self, id: &ShardId) -> Shard {
        self.shards().await.into_iter().find(|shard| shard.id == *id).unwrap()
    }

    pub(crate) async fn put(&self, hash_key: u128, data: &str) -> SequenceNumber {
        match &self.stream {
            Stream::Sim(stream) => {
                let data = data.to_owned();
                stream.put_with_hash_key("key", hash_key, data).record.sequence
            }
            #[cfg(feature = "aws")]
            Stream::Wire(wire) => wire.put(hash_key, data).await,
        }
    }

    pub(crate) async fn split(&self, shard: &ShardId, at: u128) {
        match &self.stream {
            Stream::Sim(stream) => drop(stream.split(shard, at).unwrap()),
            #[cfg(feature = "aws")]
            Stream::Wire(wire) => wire.split(shard, at).await,
        }
    }

    pub(crate) async fn merge(&self, one: &ShardId, other: &ShardId) {
        match &self.stream {
            Stream::Sim(stream) => drop(stream.merge(one, other).unwrap()),
            #[cfg(feature = "aws")]
            Stream::Wire(wire) => wire.merge(one, other).await,
        }
    }

    pub(crate) async fn iterator(&self, shard: &ShardId, from: ReadFrom) -> ShardIterator {
        self.source.iterator(shard, &from).await.unwrap()
    }

    /// Stops at the requested number of records, or at the end of the shard.
    pub(crate) async fn read(
        &self,
        shard: &ShardId,
        from: ReadFrom,
        until: Until,
    ) -> (Vec<RawRecord>, Option<End>) {
        let mut iterator = self.iterator(shard, from).await;
        let mut records = Vec::new();
        for _ in 0..100 {
            let fetched = self.source.fetch(&iterator, 1_000).await.unwrap();
            records.extend(fetched.records);
            let Some(next) = fetched.next else {
                return (records, Some(End { children: fetched.children }));
            };
            if matches!(until, Until::Records(count) if records.len() >= count) {
                return (records, None);
            }
            iterator = next;
            self.pause_between_fetches().await;
        }
        panic!("100 reads of shard {shard} returned {records:?}, which is less than {until:?}");
    }

    pub(crate) async fn pause_between_fetches(&self) {
        match &self.stream {
            Stream::Sim(_) => sleep(Duration::from_millis(200)).await,
            #[cfg(feature = "aws")]
            Stream::Wire(_) => sleep(Duration::from_millis(20)).await,
        }
    }

    /// Afterwards, the next record gets a later arrival time.
    pub(crate) async fn advance_arrival_time(&self) {
        let of_a_second = !self.is_not("ferrokinesis");
        sleep(Duration::from_millis(if of_a_second { 1_000 } else { 20 })).await;
    }

    /// `None` if an iterator expires too late for a test.
    pub(crate) fn iterator_lifetime(&self) -> Option<Duration> {
        match &self.stream {
            Stream::Sim(_) => Some(Duration::from_secs(301)),
            #[cfg(feature = "aws")]
            Stream::Wire(wire) => wire.iterator_lifetime(),
        }
    }

    pub(crate) fn reports_children(&self) -> bool {
        self.is_not("ferrokinesis")
    }

    /// Whether the server's error for an invalid iterator differs from other errors.
    pub(crate) fn detects_invalid_iterators(&self) -> bool {
        self.is_not("kinesis-local")
    }

    pub(crate) fn pushes(&self) -> bool {
        self.is_not("kinesis-local")
    }

    fn is_not(&self, server: &str) -> bool {
        match &self.stream {
            Stream::Sim(_) => true,
            #[cfg(feature = "aws")]
            Stream::Wire(wire) => wire.server.name != server,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    Records(usize),
    End,
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) children: Vec<Shard>,
}

#[cfg(feature = "aws")]
mod wire {
    use std::sync::atomic::{AtomicU32, Ordering};

    use aws_sdk_kinesis::Client;
    use lease_kinesis::KinesisSource;
    use lease_test_servers::kinesis::Server;

    use super::*;

    pub(super) struct Wire {
        pub(super) server: Arc<Server>,
        client: Client,
        name: String,
    }

    impl TestStream {
        pub(crate) async fn on(server: &Arc<Server>) -> Self {
            static STREAMS: AtomicU32 = AtomicU32::new(0);
            let name = format!("stream-{}", STREAMS.fetch_add(1, Ordering::Relaxed));
            server.create_stream(&name, 3).await;
            let client = server.client();
            let source = KinesisSource::new(&client, &name).with_consumer("consumer");
            Self {
                source: Arc::new(source),
                stream: Stream::Wire(Wire { server: Arc::clone(server), client, name }),
            }
        }
    }

    impl Wire {
        pub(super) async fn put(&self, hash_key: u128, data: &str) -> SequenceNumber {
            let request = self.client.put_record().stream_name(&self.name).partition_key("key");
            let request = request.explicit_hash_key(hash_key.to_string());
            let put = request.data(data.as_bytes().into()).send().await.unwrap();
            put.sequence_number.parse().unwrap()
        }

        pub(super) async fn split(&self, shard: &ShardId, at: u128) {
            let request = self.client.split_shard().stream_name(&self.name);
            let request = request.shard_to_split(shard.as_str());
            request.new_starting_hash_key(at.to_string()).send().await.unwrap();
            self.server.settled(&self.name).await;
        }

        pub(super) async fn merge(&self, one: &ShardId, other: &ShardId) {
            let request = self.client.merge_shards().stream_name(&self.name);
            let request = request.shard_to_merge(one.as_str());
            request.adjacent_shard_to_merge(other.as_str()).send().await.unwrap();
            self.server.settled(&self.name).await;
        }

        pub(super) fn iterator_lifetime(&self) -> Option<Duration> {
            let known = self.server.name == "ferrokinesis";
            known.then_some(Server::ITERATORS_LIVE + Duration::from_millis(100))
        }
    }
}
