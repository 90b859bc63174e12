//! Flushes: which events a flush sends, and which events stay pending.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_export::{
    BufferedDeadLetters, Capacity, Event, EventBuffer, Fenced, Flushed, Limits, MemoryBuffer,
    MemorySink, Overflow, Put, ReadLimit, Record, Response, ServiceError, Sink,
};
use serde_json::Value;
use tokio::time::timeout;

use crate::world::{World, event, everywhere, key, token};

everywhere! {
    partial_record_is_sent
    full_record_is_sent
    flush_of_empty_buffer_sends_nothing
    larger_limit_sends_all
    smaller_limit_keeps_the_rest
    limit_of_zero_sends_nothing
    request_to_hanging_sink_times_out_and_keeps_events
    failed_record_is_not_counted_and_stays_pending
    batches_span_several_reads
    oversized_event_is_dead_lettered_and_rest_is_sent
    event_without_dead_letter_room_stays_pending
    equal_events_are_two_events
    events_appended_during_flush_wait_for_the_next
}

fn hundreds(world: World) -> World {
    world.with_limits(Limits::FIREHOSE.with_events_per_record(100).unwrap())
}

async fn partial_record_is_sent(world: World) {
    let world = hundreds(world);
    let exporter = world.enabled().await;
    world.append(50).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 50);

    assert_eq!(world.sink.requests(), [1]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
}

async fn full_record_is_sent(world: World) {
    let world = hundreds(world);
    let exporter = world.enabled().await;
    world.append(100).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 100);

    assert_eq!(world.sink.requests(), [1]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
}

async fn flush_of_empty_buffer_sends_nothing(world: World) {
    let exporter = world.enabled().await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);

    assert_eq!(world.sink.requests(), [0; 0]);
}

async fn larger_limit_sends_all(world: World) {
    let exporter = world.enabled().await;
    world.append(5).await;

    assert_eq!(exporter.flush_pending_events(Some(6)).await.unwrap(), 5);

    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
}

async fn smaller_limit_keeps_the_rest(world: World) {
    let exporter = world.enabled().await;
    world.append(5).await;

    assert_eq!(exporter.flush_pending_events(Some(2)).await.unwrap(), 2);

    assert_eq!(exporter.num_pending_events().await.unwrap(), 3);
    assert_eq!(world.arrived(), [1, 2]);
}

async fn limit_of_zero_sends_nothing(world: World) {
    let exporter = world.enabled().await;
    world.append(5).await;

    assert_eq!(exporter.flush_pending_events(Some(0)).await.unwrap(), 0);

    assert_eq!(world.sink.requests(), [0; 0]);
}

async fn failed_record_is_not_counted_and_stays_pending(world: World) {
    let exporter = world.enabled().await;
    world.append(10).await;
    // The ten events fit into one record.
    world.sink.respond([Response::FailAt(vec![0])]);

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);

    assert_eq!(world.sink.requests(), [1]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 10);
    let read =
        world.buffer().read(token(1 << 52), None, ReadLimit::new(100, 1 << 20)).await.unwrap();
    let lightly_kept = (1..=10).map(event).collect::<Vec<_>>();
    let Fenced::Done(read) = read else { panic!("stale") };
    assert_eq!(
        read.iter().map(|pending| pending.event().clone()).collect::<Vec<_>>(),
        lightly_kept
    );
}

async fn request_to_hanging_sink_times_out_and_keeps_events(world: World) {
    let limit = Duration::from_secs(2);
    let exporter = world.enabled().await.with_put_limit(limit).unwrap();
    world.append(3).await;
    world.sink.respond([Response::Hang]);

    let flushed = timeout(Duration::from_secs(300), exporter.flush(None)).await.unwrap();

    let Flushed::Done(exported) = flushed.unwrap() else { panic!("not done") };
    assert_eq!((exported.sent, exported.failed), (0, 3));
    assert!(exported.sink_error.unwrap().is_retryable());
    assert!(world.locker().holder(&key()).await.unwrap().is_none(), "the lease is free");
    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 3);
}

async fn batches_span_several_reads(world: World) {
    let world = hundreds(world);
    let exporter = world.enabled().await.with_events_at_once(7);
    world.append(250).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 250);

    let taken = world.sink.taken();
    let lengths: Vec<_> = taken.iter().map(|(_, record)| record.ids().count()).collect();
    assert_eq!(lengths, [100, 100, 50]);
    assert_eq!(world.sink.requests(), [3]);
}

fn large(number: u64, bytes: usize) -> Event {
    let id = format!("event-{number}").parse().unwrap();
    Event::new(id, &Value::String("x".repeat(bytes))).unwrap()
}

async fn oversized_event_is_dead_lettered_and_rest_is_sent(world: World) {
    let dead = MemoryBuffer::new(Capacity::default());
    let dead_letters = Arc::new(BufferedDeadLetters::new(Arc::new(dead.clone())));
    let exporter = world.enabled().await.with_dead_letters(dead_letters);
    let events = [event(1), large(2, 1000 * 1024), event(3)];
    let _kept = world.buffer().append(&events).await.unwrap();

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 2);

    assert_eq!(world.arrived(), [1, 3]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
    assert_eq!(dead.pending().await.unwrap(), 1);
}

async fn event_without_dead_letter_room_stays_pending(world: World) {
    let full = MemoryBuffer::new(Capacity::new(1, Overflow::Refuse).unwrap());
    let _kept = full.append(&[event(99)]).await.unwrap();
    let letters = Arc::new(BufferedDeadLetters::new(Arc::new(full)));
    let exporter = world.enabled().await.with_dead_letters(letters);
    let events = [large(1, 1000 * 1024), event(2)];
    let _kept = world.buffer().append(&events).await.unwrap();

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 1);

    assert_eq!(world.arrived(), [2]);
    assert_eq!(world.buffer().pending().await.unwrap(), 1);
}

async fn equal_events_are_two_events(world: World) {
    let exporter = world.enabled().await;
    let _kept = world.buffer().append(&[event(1), event(1)]).await.unwrap();
    let _kept = world.buffer().append(&[event(1)]).await.unwrap();

    assert_eq!(exporter.flush_pending_events(Some(1)).await.unwrap(), 1);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 2);

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 2);
    assert_eq!(world.arrived(), [1, 1, 1]);
}

#[derive(Debug)]
struct Busy(MemorySink, Arc<dyn EventBuffer>);

#[async_trait]
impl Sink for Busy {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        let _kept = self.1.append(&[event(1), event(2)]).await?;
        self.0.put(token, records).await
    }
}

async fn events_appended_during_flush_wait_for_the_next(world: World) {
    world.enabled().await;
    let one_each = world.sink.limits().with_events_per_record(1).unwrap();
    let one_each = one_each.with_records_per_batch(1).unwrap();
    let world = world.with_limits(one_each);
    let sink = Busy(world.sink.clone(), world.buffer());
    let exporter = world.exporter_to(Arc::new(sink));
    world.append(3).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 3);

    assert_eq!(exporter.num_pending_events().await.unwrap(), 6);
}
