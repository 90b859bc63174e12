//! Compares an export with the bare commands that the export needs, and measures the memory of
//! 600,000 pending events. Each ratio compares the medians of alternating runs. The benchmark
//! starts its own server:
//! `cargo bench -p lease-export --features redis --bench export`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark fails by a panic and prints its figures"
)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::store::LeaseTable;
use lease_core::{FencingToken, Locker};
use lease_export::queue::MemoryQueue;
use lease_export::{
    Appended, Capacity, Event, EventBuffer, Exporter, Limits, MemoryBuffer, Packed, Packer, Parts,
    Pending, Position, Put, Record, RedisBuffer, RedisLink, ServiceError, Sink, TableSwitch,
};
use lease_memory::MemoryStore;
use lease_redis::RedisStore;
use lease_test_servers::measure::{is_measuring, median, timed};
use lease_test_servers::redis::RedisServer;
use redis::aio::MultiplexedConnection;
use serde_json::json;

const RUNS: usize = 5;
const EVENTS: u64 = 100_000;
const PER_APPEND: usize = 1_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if !is_measuring() {
        return;
    }
    Box::pin(in_memory()).await;
    let server = RedisServer::start();
    Box::pin(on_redis(&server)).await;
    Box::pin(memory_of_many(&server)).await;
}

#[derive(Debug)]
struct NullSink;

#[async_trait]
impl Sink for NullSink {
    fn limits(&self) -> Limits {
        Limits::KINESIS
    }

    async fn put(&self, _: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        Ok(vec![Put::Taken; records.len()])
    }
}

fn event(number: u64) -> Event {
    let body = json!({
        "order": number, "customer": format!("customer-{:06}", number % 9_973),
        "item": "kettle, stainless steel", "count": number % 7 + 1, "cents": number % 9_999,
        "placed": "2026-11-21T12:38:00Z",
    });
    Event::new(format!("event-{number}").parse().unwrap(), &body).unwrap()
}

fn exporter(store: Arc<dyn LeaseTable>, buffer: Arc<dyn EventBuffer>) -> Exporter {
    let locker = Locker::new(Arc::clone(&store));
    let switch = TableSwitch::new("switch".parse().unwrap(), &locker, store).on_at_first();
    let parts = Parts {
        switch: Arc::new(switch),
        queue: Arc::new(MemoryQueue::new(Duration::from_secs(60))),
        buffer,
        sink: Arc::new(NullSink),
    };
    Exporter::new(locker, "export".parse().unwrap(), parts)
}

async fn append(buffer: &dyn EventBuffer, events: &[Event]) {
    for some in events.chunks(PER_APPEND) {
        assert_eq!(buffer.append(some).await.unwrap(), Appended::Kept { dropped: 0 });
    }
}

async fn in_memory() {
    let buffer = MemoryBuffer::new(Capacity::default());
    let exporter = exporter(Arc::new(MemoryStore::new()), Arc::new(buffer.clone()));
    let events: Vec<_> = (1..=EVENTS).map(event).collect();
    let (mut ours, mut packing) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        append(&buffer, &events).await;
        ours.push(timed(Box::pin(flush(&exporter, EVENTS))).await);
        packing.push(timed(async { pack(&events) }).await);
    }
    row("flush from memory", median(ours), "packing alone", median(packing));
}

async fn flush(exporter: &Exporter, expected: u64) {
    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), expected);
}

fn pack(events: &[Event]) {
    let mut packer = Packer::new(Limits::KINESIS);
    let mut batches = 0;
    for (number, event) in (1..).zip(events) {
        match packer.push(Pending::new(Position::new(0, number), event.clone())) {
            Packed::Kept => (),
            Packed::Full(_) => batches += 1,
            Packed::TooLarge(_) => panic!("too large"),
        }
    }
    batches += u32::from(packer.finish().is_some());
    assert!(batches > 1);
}

async fn on_redis(server: &RedisServer) {
    let link = RedisLink::connect(&server.url()).await.unwrap();
    let buffer = RedisBuffer::new(link, "bench", Capacity::default());
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let exporter = exporter(Arc::new(store), Arc::new(buffer.clone()));
    let client = redis::Client::open(server.url()).unwrap();
    let mut bare = client.get_multiplexed_async_connection().await.unwrap();
    bare.set_response_timeout(Duration::from_secs(30));
    let events: Vec<_> = (1..=EVENTS).map(event).collect();
    let [mut appends, mut flushes, mut bare_appends, mut bare_flushes] = [const { Vec::new() }; 4];
    for _ in 0..RUNS {
        appends.push(timed(append(&buffer, &events)).await);
        flushes.push(timed(Box::pin(flush(&exporter, EVENTS))).await);
        bare_appends.push(timed(bare_append(&mut bare, &events)).await);
        bare_flushes.push(timed(bare_read_and_remove(&mut bare)).await);
    }
    row("append to Redis", median(appends), "XADD, as many at once", median(bare_appends));
    row("flush from Redis", median(flushes), "XRANGE and XDEL", median(bare_flushes));
}

async fn bare_append(bare: &mut MultiplexedConnection, events: &[Event]) {
    for some in events.chunks(PER_APPEND) {
        let mut pipe = redis::pipe();
        for event in some {
            pipe.cmd("XADD").arg("bare").arg("*").arg("id").arg(event.id().as_str());
            pipe.arg("line").arg(event.line()).ignore();
        }
        pipe.query_async::<()>(bare).await.unwrap();
    }
}

async fn bare_read_and_remove(bare: &mut MultiplexedConnection) {
    let mut total = 0;
    loop {
        let mut range = redis::cmd("XRANGE");
        range.arg("bare").arg("-").arg("+").arg("COUNT").arg(5_000);
        let entries: Vec<(String, Vec<String>)> = range.query_async(bare).await.unwrap();
        if entries.is_empty() {
            break;
        }
        let mut remove = redis::cmd("XDEL");
        remove.arg("bare").arg(entries.iter().map(|(id, _)| id).collect::<Vec<_>>());
        total += remove.query_async::<u64>(bare).await.unwrap();
    }
    assert_eq!(total, EVENTS);
}

async fn memory_of_many(server: &RedisServer) {
    let link = RedisLink::connect(&server.url()).await.unwrap();
    let buffer = RedisBuffer::new(link, "many", Capacity::default());
    let count = 600_000;
    for first in (1..=count).step_by(PER_APPEND) {
        let events: Vec<_> = (first..first + PER_APPEND as u64).map(event).collect();
        append(&buffer, &events).await;
    }
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let exporter = exporter(Arc::new(store), Arc::new(buffer));
    // Resets the peak of the memory, so that the peak belongs to the export.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let seconds = timed(Box::pin(flush(&exporter, count))).await;
    println!(
        "{count} pending events exported in {seconds:.1} s: {before} MiB resident before, {} MiB \
         at the peak",
        status("VmHWM")
    );
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn row(what: &str, seconds: f64, bare: &str, bare_seconds: f64) {
    let per_second = |seconds: f64| EVENTS as f64 / seconds / 1_000.0;
    println!(
        "{what}: {:.0}k events per second, {bare} {:.0}k: {:.2} of it",
        per_second(seconds),
        per_second(bare_seconds),
        bare_seconds / seconds
    );
}
