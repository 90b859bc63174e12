//! How long a small batch waits for more events.

use std::time::Duration;

use lease_export::Flushed;

use crate::world::{MINUTE, World, event, run};

#[tokio::test(start_paused = true)]
async fn small_batch_is_sent_after_longest_wait_in_memory() {
    small_batch_is_sent_after_longest_wait(World::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_batch_is_sent_after_longest_wait_on_redis() {
    if let Some(world) = World::on_redis_with_clock().await {
        small_batch_is_sent_after_longest_wait(world).await;
    }
}

/// An hour is longer than a machine stalls.
async fn small_batch_is_sent_after_longest_wait(mut world: World) {
    let hour = MINUTE * 60;
    let exporter = world.enabled().await.with_min_per_job(10).with_max_wait(hour).unwrap();
    assert_eq!(world.buffer().oldest_age().await.unwrap(), None);
    world.append(1).await;

    world.pass_until(hour / 2).await;
    assert_eq!(run(&exporter).await.sent, 0);
    // A later event does not make the first event wait longer.
    let _kept = world.buffer().append(&[event(2)]).await.unwrap();
    world.pass_until(hour).await;
    assert_eq!(run(&exporter).await.sent, 2);

    // The next event begins a wait of its own.
    let _kept = world.buffer().append(&[event(3)]).await.unwrap();
    assert_eq!(run(&exporter).await.sent, 0);
    assert!(world.buffer().oldest_age().await.unwrap().unwrap() < hour / 2);
    world.pass_until(hour * 2).await;
    assert_eq!(run(&exporter).await.sent, 1);
    assert_eq!(world.arrived(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn small_batch_waits_5_minutes_by_default() {
    let mut world = World::in_memory();
    let exporter = world.enabled().await.with_min_per_job(10);
    world.append(9).await;

    world.pass_until(Duration::from_secs(5 * 60 - 1)).await;
    assert_eq!(run(&exporter).await.sent, 0);
    world.pass_until(MINUTE * 5).await;
    assert_eq!(run(&exporter).await.sent, 9);
}

#[tokio::test(start_paused = true)]
async fn export_at_once_waits_as_a_job_does_and_flush_does_not() {
    let mut world = World::in_memory();
    let exporter = world.enabled().await.with_min_per_job(10);
    let export = async || match exporter.export().await.unwrap() {
        Flushed::Done(exported) => exported.sent,
        other => panic!("{other:?}"),
    };
    world.append(2).await;

    assert_eq!(export().await, 0);
    assert_eq!(exporter.flush_pending_events(Some(1)).await.unwrap(), 1);
    world.pass_until(MINUTE * 5).await;
    assert_eq!(export().await, 1);
}

#[tokio::test(start_paused = true)]
async fn wait_out_of_range_is_refused() {
    let exporter = World::in_memory().exporter();
    let wait = |wait| exporter.clone().with_max_wait(wait);

    for length in [Duration::from_millis(999), MINUTE * 60 * 24 + Duration::from_nanos(1)] {
        let refused = wait(length).unwrap_err().to_string();
        assert_eq!(refused, format!("wait {length:?} is out of range: 1 s to a day"));
    }
    for length in [Duration::from_secs(1), MINUTE * 60 * 24] {
        assert!(wait(length).is_ok(), "{length:?}");
    }
}
