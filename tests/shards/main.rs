//! Workers read a stream together, over HTTP and in real time, while workers join and stop, and the
//! stream is resharded.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot continue fails, and a run with faults reports"
)]

mod chaos;
mod fleet;
mod log;
mod table;

use lease_kinesis::Retrieval;
use lease_test_servers::redis;
use lease_test_servers::stream::Stream;

use self::fleet::{Fleet, Mode};
use self::table::Table;

#[tokio::test(flavor = "multi_thread")]
async fn memory_fleet_reads_all_records_in_order() {
    fleet_reads_all_records_in_order(Table::memory(), Mode::Lists).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_fleet_under_sessions_reads_all_records_in_order() {
    fleet_reads_all_records_in_order(Table::memory(), Mode::Session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamodb_fleet_reads_all_records_in_order() {
    fleet_reads_all_records_in_order(Table::dynamodb().await, Mode::Lists).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamodb_fleet_under_sessions_reads_all_records_in_order() {
    fleet_reads_all_records_in_order(Table::dynamodb().await, Mode::Session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_fleet_reads_all_records_in_order() {
    if redis::available() {
        fleet_reads_all_records_in_order(Table::redis(), Mode::Lists).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_fleet_under_sessions_reads_all_records_in_order() {
    if redis::available() {
        fleet_reads_all_records_in_order(Table::redis(), Mode::Session).await;
    }
}

async fn fleet_reads_all_records_in_order(table: Table, mode: Mode) {
    let stream = Stream::of_shards(6).await;
    let mut fleet = Fleet::new(table, &stream, Retrieval::Polling, mode);
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

/// A subscription may still push records after another worker has taken the shard.
#[tokio::test(flavor = "multi_thread")]
async fn pushed_records_are_read_in_order_over_split_and_merge() {
    pushed_records_are_read_in_order(Mode::Lists).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pushed_records_under_sessions_are_read_in_order_over_split_and_merge() {
    pushed_records_are_read_in_order(Mode::Session).await;
}

async fn pushed_records_are_read_in_order(mode: Mode) {
    let stream = Stream::of_shards(4).await;
    let mut fleet = Fleet::new(Table::memory(), &stream, Retrieval::FanOut, mode);
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
