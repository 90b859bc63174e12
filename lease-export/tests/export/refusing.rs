//! Events that the sink always refuses: they block no other events.

use std::sync::Arc;
use std::time::Duration;

use lease_export::{
    BufferedDeadLetters, Capacity, Event, EventBuffer, Exported, Exporter, Fenced, Flushed, Limits,
    MemoryBuffer, Overflow, Pending, ReadLimit, Response, Retries, ServiceErrorKind,
};

use crate::world::{World, event, everywhere, token};

everywhere! {
    refused_events_are_dead_lettered_and_rest_is_sent
    refused_event_is_set_aside_without_dead_letters
    sink_that_refuses_everything_dead_letters_nothing
    bisection_of_fully_refused_batches_is_bounded
    run_of_refused_events_blocks_no_good_event
    single_good_event_among_refused_ones_is_found
    temporarily_refused_event_is_sent_on_retry
    refused_request_ends_export_and_keeps_all_events
    refused_event_waits_until_sink_takes_another
    failing_batches_do_not_block_later_batches
    failing_sink_gets_no_retries_after_three_batches
    events_set_aside_do_not_keep_buffer_paused
    oversized_event_does_not_count_towards_limit
}

async fn flush(exporter: &Exporter, limit: Option<u64>) -> Exported {
    match exporter.flush(limit).await.unwrap() {
        Flushed::Done(exported) => exported,
        other => panic!("{other:?}"),
    }
}

fn refuse(world: &World, numbers: impl IntoIterator<Item = u64>) {
    world.sink.refuse(numbers.into_iter().map(|number| event(number).id().clone()));
}

fn tens(world: World) -> World {
    let limits = Limits::FIREHOSE.with_events_per_record(10);
    world.with_limits(limits.and_then(|limits| limits.with_records_per_batch(5)).unwrap())
}

async fn refused_events_are_dead_lettered_and_rest_is_sent(world: World) {
    let world = tens(world);
    let dead = MemoryBuffer::new(Capacity::default());
    let letters = Arc::new(BufferedDeadLetters::new(Arc::new(dead.clone())));
    let exporter = world.enabled().await.with_dead_letters(letters);
    world.append(120).await;
    // An event in the middle of a batch, the last event of a batch, and the last of all events.
    refuse(&world, [37, 50, 120]);

    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.refused, exported.dead_lettered), (117, 3, 3));
    assert_eq!((exported.failed, exported.sink_error.is_none()), (0, true), "{exported:?}");
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
    let expected: Vec<_> = (1..120).filter(|number| ![37, 50].contains(number)).collect();
    assert_eq!(world.arrived(), expected, "in order");
    let read = dead.read(token(1), None, ReadLimit::new(9, 1 << 20)).await.unwrap();
    let Fenced::Done(read) = read else { panic!("stale") };
    let lines: Vec<_> = read.iter().map(Pending::event).map(Event::line).collect();
    assert_eq!(
        lines[0],
        "{\"event\":{\"number\":37},\"why\":\"it was refused: sink refused the content of the request: \
         ValidationException: injected fault\"}"
    );
    assert_eq!(lines.len(), 3);
}

async fn refused_event_is_set_aside_without_dead_letters(world: World) {
    let exporter = world.enabled().await;
    world.append(10).await;
    refuse(&world, [1]);

    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.refused, exported.set_aside), (9, 1, 1));
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
    assert_eq!(world.buffer().state().await.unwrap().set_aside, 1);
    assert_eq!(world.buffer().clear_aside().await.unwrap(), 1);
    assert_eq!(world.buffer().state().await.unwrap().set_aside, 0);
}

/// For example, all events share a mistake.
async fn sink_that_refuses_everything_dead_letters_nothing(world: World) {
    let exporter = world.enabled().await;
    world.append(10).await;
    refuse(&world, 1..=10);

    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.failed), (0, 10));
    assert_eq!((exported.refused, exported.set_aside), (0, 0));
    assert_eq!(exported.sink_error.unwrap().kind(), ServiceErrorKind::Content);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 10);
}

async fn bisection_of_fully_refused_batches_is_bounded(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await;
    world.append(1_000).await;
    refuse(&world, 1..=1_000);

    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.failed), (0, 1_000));
    assert_eq!((exported.refused, exported.set_aside), (0, 0));
    // The exporter bisects the first 3 of the 20 batches thoroughly, and the other batches only
    // briefly.
    assert!(world.sink.requests().len() <= 406, "{} requests", world.sink.requests().len());
    assert_eq!(exporter.num_pending_events().await.unwrap(), 1_000);
}

async fn run_of_refused_events_blocks_no_good_event(world: World) {
    let exporter = world.enabled().await;
    world.append(12_000).await;
    let is_bad = |number: &u64| *number <= 25 || number.is_multiple_of(20);
    refuse(&world, (1..=12_000).filter(is_bad));

    let exported = flush(&exporter, None).await;

    let bad = (1..=12_000).filter(is_bad).count() as u64;
    assert_eq!((exported.sent, exported.refused, exported.set_aside), (12_000 - bad, bad, bad));
    let mut arrived = world.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, (1..=12_000).filter(|number| !is_bad(number)).collect::<Vec<_>>());
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
    let requests = world.sink.requests().len() as u64;
    assert!(requests <= bad * 2 * 14, "{requests} requests for {bad} events");
}

async fn single_good_event_among_refused_ones_is_found(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await;
    world.append(200).await;
    refuse(&world, (1..=200).filter(|number| *number != 137));

    for _ in 0..60 {
        flush(&exporter, None).await;
        if !world.arrived().is_empty() {
            break;
        }
    }

    assert_eq!(world.arrived(), [137]);
}

async fn temporarily_refused_event_is_sent_on_retry(world: World) {
    let limits = Limits::FIREHOSE.with_events_per_record(1);
    let world = world.with_limits(limits.and_then(|it| it.with_records_per_batch(1)).unwrap());
    let exporter = world.enabled().await;
    world.append(3).await;
    world.sink.respond([Response::RefuseContent, Response::RefuseContent]);

    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.refused, exported.failed), (3, 0, 0));
    assert_eq!(world.arrived(), [3, 1, 2]);
    assert_eq!(world.buffer().state().await.unwrap().set_aside, 0);
}

/// For example, the credentials are wrong, but the events are valid.
async fn refused_request_ends_export_and_keeps_all_events(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await;
    world.append(250).await;
    world.sink.respond([Response::TakeAll, Response::Refuse]);

    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.refused, exported.set_aside), (50, 0, 0));
    assert_eq!(exported.sink_error.unwrap().kind(), ServiceErrorKind::Refused);
    assert_eq!(world.sink.requests(), [5, 5], "no further requests");
    assert_eq!(exporter.num_pending_events().await.unwrap(), 200);
    assert_eq!(flush(&exporter, None).await.sent, 200);
}

async fn refused_event_waits_until_sink_takes_another(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    refuse(&world, [1]);
    assert_eq!(flush(&exporter, None).await.failed, 1);

    let _kept = world.buffer().append(&[event(2)]).await.unwrap();
    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.refused, exported.set_aside), (1, 1, 1));
    assert_eq!(world.arrived(), [2]);
}

async fn failing_batches_do_not_block_later_batches(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await;
    world.append(250).await;
    world.sink.respond(vec![Response::FailAll; 4]);

    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.failed), (50, 200));
    assert_eq!(world.arrived(), (201..=250).collect::<Vec<_>>());
}

async fn failing_sink_gets_no_retries_after_three_batches(world: World) {
    let world = tens(world);
    let twice = Retries::new(2, Duration::from_millis(1), Duration::from_millis(2)).unwrap();
    let exporter = world.enabled().await.with_retries(twice);
    world.append(500).await;
    world.sink.respond(vec![Response::FailAll; 100]);

    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.failed), (0, 500));
    assert_eq!(world.sink.requests().len(), 3 * 3 + 7);
}

fn large(number: u64) -> Event {
    let body = serde_json::Value::String("x".repeat(1000 * 1024));
    Event::new(event(number).id().clone(), &body).unwrap()
}

async fn events_set_aside_do_not_keep_buffer_paused(world: World) {
    let world = world.with_capacity(Capacity::new(2, Overflow::Pause).unwrap());
    let exporter = world.enabled().await;
    let buffer = world.buffer();
    let _kept = buffer.append(&[large(1), event(2)]).await.unwrap();
    let _stopped = buffer.append(&[event(3)]).await.unwrap();

    let exported = flush(&exporter, None).await;

    assert_eq!((exported.sent, exported.too_large, exported.set_aside), (1, 1, 1));
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
    world.append(1).await;
    assert_eq!(buffer.state().await.unwrap().set_aside, 1, "the event is set aside");
}

async fn oversized_event_does_not_count_towards_limit(world: World) {
    let exporter = world.enabled().await;
    let events = [large(1), large(2), event(3), event(4)];
    let _kept = world.buffer().append(&events).await.unwrap();

    assert_eq!(flush(&exporter, Some(1)).await.sent, 1);

    assert_eq!(world.arrived(), [3]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 1);
}
