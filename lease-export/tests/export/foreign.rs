//! Data of other programs under the exporter's keys in Redis: the exporter skips, removes or sets
//! aside the data, and logs it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lease_core::Locker;
use lease_export::queue::{JobQueue, RedisQueue};
use lease_export::{
    Bucket, BucketOptions, BucketSource, BucketStore, Capacity, EventBuffer, Exporter, Intake,
    Limits, MemorySink, Operator, Parts, Pipeline, PutIn, RedisBuckets, RedisBuffer, RedisLink,
    ServiceErrorKind, TableSwitch, Worked,
};
use lease_memory::MemoryStore;
use lease_test_servers::redis::{RedisServer, available, until};
use serde_json::Map;

use crate::world::{event, run};

struct Exporting {
    server: RedisServer,
    buckets: Arc<RedisBuckets>,
    buffer: RedisBuffer,
    queue: Arc<RedisQueue>,
    sink: MemorySink,
    exporter: Exporter,
}

async fn exporting() -> Option<Exporting> {
    if !available() {
        return None;
    }
    let server = RedisServer::start();
    let link =
        RedisLink::connect_with_timeout(&server.url(), Duration::from_secs(60)).await.unwrap();
    let options = BucketOptions::new(Duration::from_secs(1)).unwrap().with_margin(Duration::ZERO);
    let buckets = Arc::new(RedisBuckets::new(link.clone(), "orders", options));
    buckets.set_intake(Intake::Open).await.unwrap();
    let buffer = RedisBuffer::new(link.clone(), "orders", Capacity::default());
    let queue = Arc::new(RedisQueue::new(link, "orders", Duration::from_secs(30)));
    let store = MemoryStore::new();
    let locker = Locker::new(store.clone());
    let sink = MemorySink::new(Limits::KINESIS);
    let parts = Parts {
        switch: Arc::new(TableSwitch::new("on".parse().unwrap(), &locker, store).on_at_first()),
        queue: Arc::clone(&queue) as Arc<dyn JobQueue>,
        buffer: Arc::new(buffer.clone()),
        sink: Arc::new(sink.clone()),
    };
    let pipeline = Pipeline::new(|_, _| Ok(Map::new()));
    let source = BucketSource::new(Arc::clone(&buckets) as Arc<dyn BucketStore>, pipeline);
    let exporter = Exporter::new(locker, "export".parse().unwrap(), parts).with_source(source);
    Some(Exporting { server, buckets, buffer, queue, sink, exporter })
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_entry_that_is_not_utf8_is_skipped_and_counted() {
    let Some(Exporting { server, buckets, sink, exporter, .. }) = exporting().await else { return };
    let PutIn::Bucket(bucket) = buckets.put(&[("a", Some("1"))]).await.unwrap() else {
        panic!("not in a bucket")
    };
    let hash = format!("buckets:{{orders}}:in:{bucket}");
    for foreign in [r#""b" "=\xff""#, r#""\xfe" "=1""#] {
        assert_eq!(server.command(&format!("HSET {hash} {foreign}")).trim(), "1");
    }
    let now = || server.command(r#"EVAL "return redis.call('TIME')[1]" 0"#);
    let after = bucket.seconds() + 2;
    until("the bucket is closed", || now().trim().parse::<u64>().is_ok_and(|now| now >= after));

    let exported = run(&exporter).await;

    assert_eq!((exported.sent, exported.collected, exported.bad), (1, 1, 2));
    assert_eq!(sink.ids().len(), 1);
    assert_eq!(server.command(&format!("EXISTS {hash}")).trim(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_bucket_is_skipped_logged_and_listed() {
    let Some(Exporting { server, buffer, exporter, .. }) = exporting().await else { return };
    server.command("SET buckets:{orders}:in:100 x");
    server.command("ZADD buckets:{orders}:index 100 100");
    let _kept = buffer.append(&[event(1)]).await.unwrap();

    let exported = run(&exporter).await;

    assert_eq!(exported.sent, 1);
    let error = exported.source_error.unwrap();
    assert_eq!(error.kind(), ServiceErrorKind::Corrupt);
    let said = error.source().unwrap().to_string();
    assert!(said.starts_with("buckets:{orders}:in:100: "), "{said}");
    let listed = Operator::new(&exporter).list().await.unwrap();
    assert_eq!(listed, [(Bucket::starting_at(100), 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_is_not_utf8_is_removed() {
    let Some(Exporting { server, queue, exporter, .. }) = exporting().await else { return };
    let id = queue.enqueue("soon overwritten").await.unwrap();
    server.command(&format!(r#"HSET jobs:{{orders}}:job {id}:body "\xff\xfe""#));

    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert!(matches!(worked, Worked::Unreadable(unreadable) if unreadable == id), "{worked:?}");
    assert_eq!(queue.count().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_larger_than_script_stack_is_set_aside() {
    let Some(Exporting { server, buffer, exporter, .. }) = exporting().await else { return };
    let items = "x ".repeat(10_000);
    for _ in 0..2 {
        assert!(server.command(&format!("XADD events:{{orders}}:stream * {items}")).contains('-'));
    }
    let _kept = buffer.append(&[event(1)]).await.unwrap();

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 1);

    assert_eq!(buffer.pending().await.unwrap(), 0);
    assert_eq!(buffer.state().await.unwrap().set_aside, 2);
}
