//! Events that the sink never takes: they block no other event, and keep no buffer paused.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_export::{
    Appended, Capacity, EventBuffer, EventId, Exported, Exporter, Fenced, Flushed, Intake, Limits,
    MemorySink, Overflow, Pending, Put, ReadLimit, Record, ServiceError, ServiceErrorKind, Sink,
    StopCause,
};

use crate::world::{World, event, everywhere, token};

everywhere! {
    event_that_always_fails_is_set_aside_after_its_last_export
    other_event_of_a_failing_record_is_sent_alone
    failures_of_a_sink_that_takes_nothing_do_not_count
    paused_buffer_opens_if_only_failed_events_are_left
    paused_buffer_stays_closed_while_much_is_left
    stopped_buffer_stays_stopped_with_only_failed_events_left
    events_set_aside_are_bounded_by_the_capacity
}

#[derive(Debug)]
struct FailingSink {
    inner: MemorySink,
    failing: BTreeSet<EventId>,
}

#[async_trait]
impl Sink for FailingSink {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        let mut answers = Vec::new();
        for record in records {
            if record.ids().any(|id| self.failing.contains(id)) {
                answers.push(Put::Failed("InternalFailure: injected fault".to_owned()));
            } else {
                answers.extend(self.inner.put(token, std::slice::from_ref(record)).await?);
            }
        }
        Ok(answers)
    }
}

async fn failing(world: &World, numbers: impl IntoIterator<Item = u64>) -> Exporter {
    world.enabled().await;
    let inner = world.sink.clone();
    let failing = numbers.into_iter().map(|number| event(number).id().clone()).collect();
    world.exporter_to(Arc::new(FailingSink { inner, failing }))
}

fn pairs(world: World) -> World {
    world.with_limits(Limits::FIREHOSE.with_events_per_record(2).unwrap())
}

async fn flush(exporter: &Exporter) -> Exported {
    match exporter.flush(None).await.unwrap() {
        Flushed::Done(exported) => exported,
        other => panic!("{other:?}"),
    }
}

async fn append(world: &World, numbers: impl IntoIterator<Item = u64>) -> Appended {
    let events: Vec<_> = numbers.into_iter().map(event).collect();
    world.buffer().append(&events).await.unwrap()
}

async fn event_that_always_fails_is_set_aside_after_its_last_export(world: World) {
    let world = pairs(world);
    let exporter = failing(&world, [2]).await.with_max_failures(3);
    let kept = append(&world, [1, 2]).await;
    assert_eq!(kept, Appended::Kept { dropped: 0 });

    for number in 3..6 {
        let _kept = append(&world, [number]).await;
        let exported = flush(&exporter).await;
        assert_eq!((exported.sent, exported.failed), (1, 2), "{number}");
    }
    let _kept = append(&world, [6]).await;
    let exported = flush(&exporter).await;

    assert_eq!((exported.sent, exported.given_up, exported.set_aside), (2, 1, 1));
    assert_eq!(world.arrived(), [3, 4, 5, 6, 1]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
    assert_eq!(world.buffer().state().await.unwrap().set_aside, 1);
}

async fn other_event_of_a_failing_record_is_sent_alone(world: World) {
    let world = pairs(world);
    let exporter = failing(&world, [1]).await.with_max_failures(1);
    let _kept = append(&world, [1, 2, 3]).await;

    assert_eq!(flush(&exporter).await.failed, 2);
    let exported = flush(&exporter).await;

    assert_eq!((exported.sent, exported.given_up), (1, 1));
    assert_eq!(world.arrived(), [3, 2]);
}

async fn failures_of_a_sink_that_takes_nothing_do_not_count(world: World) {
    let world = pairs(world);
    let exporter = failing(&world, 1..=4).await.with_max_failures(1);
    let _kept = append(&world, 1..=4).await;

    for _ in 0..5 {
        let exported = flush(&exporter).await;
        assert_eq!((exported.failed, exported.given_up), (4, 0));
    }

    // Now the sink takes another event, so this is the first failure that counts.
    let _kept = append(&world, [5]).await;
    let exported = flush(&exporter).await;
    assert_eq!((exported.sent, exported.failed, exported.given_up), (1, 4, 0));
    assert_eq!(exporter.num_pending_events().await.unwrap(), 4);
}

fn paused_at_twenty(world: World) -> World {
    world.with_capacity(Capacity::new(20, Overflow::Pause).unwrap())
}

async fn paused_buffer_opens_if_only_failed_events_are_left(world: World) {
    let world = pairs(paused_at_twenty(world));
    let exporter = failing(&world, [7]).await;
    let _kept = append(&world, 1..=20).await;
    assert_eq!(append(&world, [21]).await, Appended::Stopped(StopCause::Emergency));

    let exported = flush(&exporter).await;

    assert_eq!((exported.sent, exported.failed), (18, 2));
    assert_eq!(world.buffer().state().await.unwrap().intake, Intake::Open);
    assert_eq!(append(&world, [21]).await, Appended::Kept { dropped: 0 });
}

async fn paused_buffer_stays_closed_while_much_is_left(world: World) {
    let world = paused_at_twenty(world);
    let exporter = failing(&world, [1, 2, 3]).await;
    let _kept = append(&world, 1..=20).await;
    assert_eq!(append(&world, [21]).await, Appended::Stopped(StopCause::Emergency));

    let exported = flush(&exporter).await;

    assert_eq!((exported.sent, exported.failed), (0, 20));
    let paused = Intake::Stopped(StopCause::Emergency);
    assert_eq!(world.buffer().state().await.unwrap().intake, paused);
}

async fn stopped_buffer_stays_stopped_with_only_failed_events_left(world: World) {
    let world = pairs(paused_at_twenty(world));
    let exporter = failing(&world, [7]).await;
    let _kept = append(&world, 1..=20).await;
    let stopped = Intake::Stopped(StopCause::Operator);
    world.buffer().set_intake(stopped).await.unwrap();

    let exported = flush(&exporter).await;

    assert_eq!((exported.sent, exported.failed), (18, 2));
    assert_eq!(world.buffer().state().await.unwrap().intake, stopped);
}

async fn events_set_aside_are_bounded_by_the_capacity(world: World) {
    let world = world.with_capacity(Capacity::new(2, Overflow::Refuse).unwrap());
    let buffer = world.buffer();
    let set_all_aside = async || {
        let read = buffer.read(token(1), None, ReadLimit::new(9, 1 << 20)).await.unwrap();
        let Fenced::Done(read) = read else { panic!("{read:?}") };
        let positions: Vec<_> = read.iter().map(Pending::position).collect();
        buffer.set_aside(token(1), &positions).await
    };
    let _kept = append(&world, [1, 2]).await;
    assert_eq!(set_all_aside().await.unwrap(), Fenced::Done(2));
    let _kept = append(&world, [3]).await;

    let refused = set_all_aside().await.unwrap_err();

    assert_eq!(refused.kind(), ServiceErrorKind::Refused);
    assert_eq!(buffer.pending().await.unwrap(), 1, "the event stays pending");
    assert_eq!(buffer.clear_aside().await.unwrap(), 2);
    assert_eq!(set_all_aside().await.unwrap(), Fenced::Done(1));
}

/// The exporter has the same constant.
const MOST_COUNTED: u64 = 100_000;

/// Without forgetting, the map of failures would be full, and would count no other failures.
#[tokio::test(start_paused = true)]
async fn failures_of_events_that_another_process_sent_are_forgotten() {
    let world = World::in_memory();
    let world = world.with_limits(Limits::KINESIS.with_events_per_record(1).unwrap());
    let many = 1..=MOST_COUNTED;
    let exporter = failing(&world, many.clone()).await.with_max_failures(1);
    let _kept = append(&world, many.chain([MOST_COUNTED + 1])).await;
    assert_eq!(flush(&exporter).await.failed, MOST_COUNTED);
    let other = failing(&world, []).await;
    assert_eq!(flush(&other).await.sent, MOST_COUNTED);

    // The sink fails only the events 1 to `MOST_COUNTED`, so it takes the other event.
    let _kept = append(&world, [1, MOST_COUNTED + 2]).await;
    assert_eq!(flush(&exporter).await.failed, 1);
    let _kept = append(&world, [MOST_COUNTED + 3]).await;

    assert_eq!(flush(&exporter).await.given_up, 1);
}
