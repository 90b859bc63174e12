//! Workers that read a stream together while they join, stop and die and the stream is reshaped:
//! over HTTP, on every table, in real time.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod fleet;
mod log;
mod producer;
mod stream;
mod table;

use lease_kinesis::Retrieval;
use lease_test_servers::redis;

use self::fleet::Fleet;
use self::stream::Stream;
use self::table::Table;

#[tokio::test(flavor = "multi_thread")]
async fn on_memory_everything_is_read_in_order_whoever_comes_and_goes() {
    everything_is_read_in_order_whoever_comes_and_goes(Table::memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_dynamodb_everything_is_read_in_order_whoever_comes_and_goes() {
    everything_is_read_in_order_whoever_comes_and_goes(Table::dynamodb().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_everything_is_read_in_order_whoever_comes_and_goes() {
    if redis::available() {
        everything_is_read_in_order_whoever_comes_and_goes(Table::redis()).await;
    }
}

async fn everything_is_read_in_order_whoever_comes_and_goes(table: Table) {
    let stream = Stream::of_shards(6).await;
    let mut fleet = Fleet::new(table, &stream, Retrieval::Polling);
    let producer = stream.produce();
    for name in ["a", "b", "c"] {
        fleet.start(name).await;
    }
    fleet.until_shared(6).await;
    producer.has_put_more(200).await;

    let shards = stream.open_shards().await;
    stream.split(&shards[0]).await;
    stream.merge(&shards[2], &shards[3]).await;
    fleet.kill("c").await;
    fleet.until_shared(6).await;
    fleet.start("d").await;
    fleet.until_shared(6).await;
    fleet.stop("b").await;
    fleet.until_shared(6).await;
    producer.has_put_more(200).await;

    let put = producer.end().await;
    fleet.until_all_is_read(&put).await;
    fleet.stop("a").await;
    fleet.stop("d").await;
    fleet.log.is_right(&put, &stream.shards().await);
}

/// A subscription that another worker took over may push what it had on its way.
#[tokio::test(flavor = "multi_thread")]
async fn pushed_records_are_read_in_order_through_a_split_and_a_merge() {
    let stream = Stream::of_shards(4).await;
    let mut fleet = Fleet::new(Table::memory(), &stream, Retrieval::FanOut);
    let producer = stream.produce();
    fleet.start("a").await;
    fleet.start("b").await;
    fleet.until_shared(4).await;
    producer.has_put_more(200).await;

    let shards = stream.open_shards().await;
    stream.split(&shards[0]).await;
    stream.merge(&shards[2], &shards[3]).await;
    fleet.until_shared(4).await;
    fleet.stop("b").await;
    fleet.until_shared(4).await;
    producer.has_put_more(200).await;

    let put = producer.end().await;
    fleet.until_all_is_read(&put).await;
    fleet.stop("a").await;
    fleet.log.is_right(&put, &stream.shards().await);
}
