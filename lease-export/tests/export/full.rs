//! A full Redis server, large lines, and entries of other programs.

use std::sync::Arc;
use std::time::Duration;

use lease_core::Locker;
use lease_export::queue::{JobQueue, RedisQueue};
use lease_export::{
    BucketOptions, BucketStore, Capacity, Event, EventBuffer, Exporter, Fenced, Intake, Limits,
    MemorySink, Parts, Pending, PutIn, ReadLimit, RedisBuckets, RedisBuffer, RedisLink,
    TableSwitch,
};
use lease_memory::MemoryStore;
use lease_test_servers::redis::{RedisServer, available};
use serde_json::Value;

use crate::world::{event, read_all, token};

async fn buffer_on(server: &RedisServer) -> RedisBuffer {
    let link = RedisLink::connect_with_timeout(&server.url(), Duration::from_secs(60)).await;
    RedisBuffer::new(link.unwrap(), "orders", Capacity::default())
}

fn server(options: &[&str]) -> Option<RedisServer> {
    available().then(|| RedisServer::with(options))
}

const LITTLE_MEMORY: [&str; 4] = ["--maxmemory", "6mb", "--maxmemory-policy", "noeviction"];

fn long(number: u64, bytes: usize) -> Event {
    Event::new(event(number).id().clone(), &Value::String("x".repeat(bytes))).unwrap()
}

async fn fill(buffer: &RedisBuffer) -> u64 {
    for number in 1.. {
        if buffer.append(&[long(number, 50_000)]).await.is_err() {
            break;
        }
    }
    buffer.pending().await.unwrap()
}

async fn read(buffer: &RedisBuffer, number: u64, most: ReadLimit) -> Vec<Pending> {
    match buffer.read(token(number), None, most).await.unwrap() {
        Fenced::Done(read) => read,
        stale @ Fenced::Stale { .. } => panic!("{stale:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_server_is_drained() {
    let Some(server) = server(&LITTLE_MEMORY) else { return };
    let buffer = buffer_on(&server).await;
    let count = fill(&buffer).await;
    assert!(count > 10, "{count}");
    // The full Redis server has no memory for a grant, so a memory store has the leases.
    let store = MemoryStore::new();
    let locker = Locker::new(store.clone());
    let link = RedisLink::connect(&server.url()).await.unwrap();
    let sink = MemorySink::new(Limits::KINESIS);
    let parts = Parts {
        switch: Arc::new(TableSwitch::new("on".parse().unwrap(), &locker, store).on_at_first()),
        queue: Arc::new(RedisQueue::new(link, "orders", Duration::from_secs(30))),
        buffer: Arc::new(buffer.clone()),
        sink: Arc::new(sink.clone()),
    };
    let exporter = Exporter::new(locker, "export".parse().unwrap(), parts);

    // Each flush has a new token, which the full server must store.
    assert_eq!(exporter.flush_pending_events(Some(2)).await.unwrap(), 2);
    let again = fill(&buffer).await;
    assert!(again + 5 > count, "refilled buffer holds only {again} events, not about {count}");
    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), again);

    assert_eq!(buffer.pending().await.unwrap(), 0);
    assert_eq!(sink.ids().len() as u64, again + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsendable_event_is_set_aside_on_full_server() {
    let Some(server) = server(&LITTLE_MEMORY) else { return };
    let buffer = buffer_on(&server).await;
    let count = fill(&buffer).await;
    let first = read(&buffer, 1, ReadLimit::new(1, 1)).await[0].position();

    assert_eq!(buffer.set_aside(token(2), &[first]).await.unwrap(), Fenced::Done(1));

    assert_eq!(buffer.pending().await.unwrap(), count - 1);
    assert_eq!(buffer.state().await.unwrap().set_aside, 1);
    assert_eq!(buffer.clear_aside().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_server_serves_buckets_and_jobs() {
    let Some(server) = server(&LITTLE_MEMORY) else { return };
    let link =
        RedisLink::connect_with_timeout(&server.url(), Duration::from_secs(60)).await.unwrap();
    let second = BucketOptions::new(Duration::from_secs(1)).unwrap();
    let buckets = RedisBuckets::new(link.clone(), "seconds", second.with_margin(Duration::ZERO));
    let queue = RedisQueue::new(link, "orders", Duration::from_secs(30));
    buckets.set_intake(Intake::Open).await.unwrap();
    let PutIn::Bucket(bucket) = buckets.put(&[("a", Some("1")), ("b", None)]).await.unwrap() else {
        panic!("not in a bucket");
    };
    queue.enqueue("a").await.unwrap();
    fill(&buffer_on(&server).await).await;

    assert_eq!(queue.count().await.unwrap(), 1);
    let delivery = queue.take(Duration::ZERO).await.unwrap().unwrap();
    assert!(queue.keep(&delivery).await.unwrap());
    assert!(queue.finish(&delivery).await.unwrap());
    while buckets.closed(9).await.unwrap() != [bucket] {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(read_all(&buckets, bucket).await.len(), 2);
    assert_eq!(buckets.remove_keys(token(1), bucket, &["b"]).await.unwrap(), Fenced::Done(1));
    assert_eq!(buckets.remove(token(2), &[bucket]).await.unwrap(), Fenced::Done(1));
    assert_eq!(buckets.marker().await.unwrap(), Some(bucket));
}

#[tokio::test(flavor = "multi_thread")]
async fn read_of_long_lines_is_bounded_in_memory() {
    let Some(server) = server(&[]) else { return };
    let buffer = buffer_on(&server).await;
    for number in 1..=64 {
        let _kept = buffer.append(&[event(number), long(number, 1 << 20)]).await.unwrap();
    }

    let memory = |field: &str| {
        let info = server.command("INFO memory");
        let found = info.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        found.trim().parse::<u64>().unwrap()
    };
    let before = memory("used_memory:");

    let read = read(&buffer, 1, ReadLimit::new(5_000, 2 << 20)).await;

    assert_eq!(read.len(), 4);
    let taken = memory("used_memory_peak:") - before;
    assert!(taken < 16 << 20, "the server used {taken} bytes to read 2 MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_of_other_program_is_set_aside_and_blocks_nothing() {
    let Some(server) = server(&[]) else { return };
    let buffer = buffer_on(&server).await;
    let add = |fields: &str| server.command(&format!("XADD events:{{orders}}:stream * {fields}"));
    for foreign in ["a b", "id event-7 line notjson", "a b c d e f", "id x other {}"] {
        assert!(add(foreign).contains('-'), "an id");
    }
    let _kept = buffer.append(&[event(1)]).await.unwrap();
    add("line {} id y");

    let read = read(&buffer, 1, ReadLimit::new(1, 1)).await;

    assert_eq!(read.len(), 1);
    assert_eq!(*read[0].event(), event(1));
    let after = Some(read[0].position());
    let rest = buffer.read(token(1), after, ReadLimit::new(9, 1 << 20)).await.unwrap();
    assert_eq!(rest, Fenced::Done(Vec::new()));
    assert_eq!(buffer.pending().await.unwrap(), 1);
    assert_eq!(buffer.state().await.unwrap().set_aside, 5);
}
