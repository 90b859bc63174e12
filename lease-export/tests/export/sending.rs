//! Jobs: which events and requests a job sends, and which events stay pending.

use std::time::Duration;

use lease_export::{
    Appended, Capacity, EventBuffer, Limits, Overflow, Response, Retries, StopCause,
};

use crate::world::{World, event, everywhere, run};

everywhere! {
    partial_record_waits_for_more_events
    stopped_buffer_is_sent_with_few_events
    full_buffer_is_sent_below_the_minimum
    exactly_one_record_is_sent
    two_records_are_one_request
    six_records_are_two_requests
    failed_record_stays_pending
    failed_request_stays_pending_and_others_are_sent
    only_failed_records_are_retried
    retries_are_bounded
    lost_answer_resends_the_same_ids
    wrong_number_of_answers_is_refused
}

fn tens(world: World) -> World {
    world.with_limits(
        Limits::FIREHOSE
            .with_events_per_record(10)
            .and_then(|limits| limits.with_records_per_batch(5))
            .unwrap(),
    )
}

async fn partial_record_waits_for_more_events(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await.with_min_per_job(10);
    world.append(9).await;

    assert_eq!(run(&exporter).await.sent, 0);

    assert_eq!(world.sink.requests(), [0; 0]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 9);
}

async fn stopped_buffer_is_sent_with_few_events(world: World) {
    let world = world.with_capacity(Capacity::new(10, Overflow::Pause).unwrap());
    let exporter = world.enabled().await.with_min_per_job(10);
    world.append(9).await;
    let stopped = world.buffer().append(&[event(10), event(11)]).await.unwrap();
    assert_eq!(stopped, Appended::Stopped(StopCause::Emergency));

    assert_eq!(run(&exporter).await.sent, 9);

    world.append(1).await;
}

async fn full_buffer_is_sent_below_the_minimum(world: World) {
    let world = world.with_capacity(Capacity::new(5, Overflow::Refuse).unwrap());
    let exporter = world.enabled().await.with_min_per_job(10);
    world.append(5).await;

    assert_eq!(run(&exporter).await.sent, 5);
}

async fn exactly_one_record_is_sent(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await.with_min_per_job(10);
    world.append(10).await;

    assert_eq!(run(&exporter).await.sent, 10);

    assert_eq!(world.sink.requests(), [1]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
}

async fn two_records_are_one_request(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await;
    world.append(20).await;

    assert_eq!(run(&exporter).await.sent, 20);

    assert_eq!(world.sink.requests(), [2]);
}

async fn six_records_are_two_requests(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await;
    world.append(60).await;

    assert_eq!(run(&exporter).await.sent, 60);

    assert_eq!(world.sink.requests(), [5, 1]);
    assert_eq!(world.arrived(), (1..=60).collect::<Vec<_>>());
}

async fn failed_record_stays_pending(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await;
    world.append(30).await;
    world.sink.respond([Response::FailAt(vec![1])]);

    let exported = run(&exporter).await;

    assert_eq!((exported.sent, exported.failed), (20, 10));
    assert_eq!(exporter.num_pending_events().await.unwrap(), 10);
    assert_eq!(run(&exporter).await.sent, 10);
    let mut arrived = world.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, (1..=30).collect::<Vec<_>>());
}

async fn failed_request_stays_pending_and_others_are_sent(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await;
    world.append(110).await;
    world.sink.respond([Response::TakeAll, Response::Unavailable]);

    let exported = run(&exporter).await;

    assert_eq!((exported.sent, exported.failed), (60, 50));
    assert_eq!(exported.sink_error.unwrap().to_string(), "sink did not answer");
    assert_eq!(world.sink.requests(), [5, 5, 1]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 50);
}

fn twice() -> Retries {
    Retries::new(2, Duration::from_millis(1), Duration::from_millis(2)).unwrap()
}

async fn only_failed_records_are_retried(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await.with_retries(twice());
    world.append(50).await;
    world.sink.respond([Response::FailAt(vec![1, 3]), Response::FailAt(vec![0])]);

    assert_eq!(run(&exporter).await.sent, 50);

    assert_eq!(world.sink.requests(), [5, 2, 1]);
    let mut arrived = world.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, (1..=50).collect::<Vec<_>>());
}

async fn retries_are_bounded(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await.with_retries(twice());
    world.append(20).await;
    let first_fails = || Response::FailAt(vec![0]);
    world.sink.respond([first_fails(), first_fails(), first_fails()]);

    let exported = run(&exporter).await;

    assert_eq!((exported.sent, exported.failed), (10, 10));
    assert_eq!(world.sink.requests(), [2, 1, 1]);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 10);
}

async fn lost_answer_resends_the_same_ids(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await.with_retries(twice());
    world.append(2).await;
    world.sink.respond([Response::LoseAnswer]);

    assert_eq!(run(&exporter).await.sent, 2);

    assert_eq!(world.arrived(), [1, 2, 1, 2]);
    let taken = world.sink.taken();
    assert_eq!(taken[0], taken[1]);
}

async fn wrong_number_of_answers_is_refused(world: World) {
    let world = tens(world);
    let exporter = world.enabled().await.with_retries(twice());
    for answers in [0, 1, 3] {
        world.append(20).await;
        world.sink.respond([Response::Answers(answers)]);

        let exported = run(&exporter).await;

        assert_eq!((exported.sent, exported.failed), (0, 20), "{answers} answers for 2 records");
        let error = exported.sink_error.unwrap();
        assert_eq!(error.to_string(), "sink returned unreadable data");
        assert_eq!(exporter.num_pending_events().await.unwrap(), 20);
        assert_eq!(run(&exporter).await.sent, 20);
    }
}
