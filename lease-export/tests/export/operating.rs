//! The operator's commands, and when they are refused.

use std::sync::Arc;
use std::time::Duration;

use lease_export::{
    BucketSource, BucketStore, Deleted, EventBuffer, Exporter, Fenced, Flushed, Intake, Operator,
    Pending, Pipeline, PutIn, ReadLimit, Refusal, StopCause,
};
use serde_json::Map;

use crate::world::{Minutes, World, everywhere_with_buckets, key, token};

everywhere_with_buckets! {
    intake_cannot_open_while_export_is_disabled
    export_cannot_be_disabled_while_intake_is_open
    delete_stops_the_intake_first
    buffer_is_the_intake_without_buckets
    paused_buffer_behind_buckets_is_reported_and_opened
    delete_removes_pending_events_behind_buckets
    pending_events_are_counted_and_flushed
    emergency_differs_from_operators_stop
    export_cannot_be_disabled_while_intake_reopens_by_itself
    nothing_is_deleted_while_lease_is_held
    events_set_aside_are_counted_and_deleted
}

fn with_buckets(world: &World, minutes: &Minutes) -> Exporter {
    let pipeline = Pipeline::new(|_, _| Ok(Map::new()));
    let source = BucketSource::new(Arc::clone(&minutes.buckets), pipeline);
    world.exporter().with_source(source)
}

async fn intake_cannot_open_while_export_is_disabled(world: World, minutes: Minutes) {
    let exporter = with_buckets(&world, &minutes);
    let operator = Operator::new(&exporter);
    operator.stop_intake().await.unwrap();

    assert_eq!(operator.open_intake().await.unwrap(), Err(Refusal::ExportIsDisabled));
    assert_eq!(operator.intake().await.unwrap(), Intake::Stopped(StopCause::Operator));

    operator.enable().await.unwrap();
    assert_eq!(operator.open_intake().await.unwrap(), Ok(()));
    assert_eq!(operator.intake().await.unwrap(), Intake::Open);
}

async fn export_cannot_be_disabled_while_intake_is_open(world: World, minutes: Minutes) {
    let exporter = with_buckets(&world, &minutes);
    let operator = Operator::new(&exporter);
    operator.enable().await.unwrap();

    assert_eq!(operator.disable().await.unwrap(), Err(Refusal::IntakeIsOpen));
    assert!(operator.is_enabled().await.unwrap());

    operator.stop_intake().await.unwrap();
    assert_eq!(operator.disable().await.unwrap(), Ok(()));
    assert!(!operator.is_enabled().await.unwrap());
}

async fn delete_stops_the_intake_first(world: World, mut minutes: Minutes) {
    let exporter = with_buckets(&world, &minutes);
    let operator = Operator::new(&exporter);
    for _ in 0..2 {
        let _put = minutes.buckets.put(&[("a", Some("1")), ("b", Some("2"))]).await.unwrap();
        minutes.pass(Duration::from_secs(60)).await;
    }
    let counts: Vec<_> = operator.list().await.unwrap().iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [2, 2]);

    assert_eq!(operator.delete().await.unwrap(), Deleted::Done(2));

    assert_eq!(operator.list().await.unwrap(), []);
    assert_eq!(operator.intake().await.unwrap(), Intake::Stopped(StopCause::Operator));
    let put_in = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();
    assert_eq!(put_in, PutIn::Stopped(StopCause::Operator));
}

async fn buffer_is_the_intake_without_buckets(world: World, _: Minutes) {
    let exporter = world.exporter();
    let operator = Operator::new(&exporter);
    world.append(3).await;

    assert_eq!(operator.delete().await.unwrap(), Deleted::Done(3));

    assert_eq!(operator.pending().await.unwrap(), 0);
    assert_eq!(operator.intake().await.unwrap(), Intake::Stopped(StopCause::Operator));
    assert_eq!(operator.list().await.unwrap(), []);
}

async fn paused_buffer_behind_buckets_is_reported_and_opened(world: World, minutes: Minutes) {
    let exporter = with_buckets(&world, &minutes);
    let operator = Operator::new(&exporter);
    operator.enable().await.unwrap();
    world.append(1).await;
    let emergency = Intake::Stopped(StopCause::Emergency);
    world.buffer().set_intake(emergency).await.unwrap();

    assert_eq!(operator.intake().await.unwrap(), emergency);
    assert!(operator.is_emergency().await.unwrap());
    assert_eq!(
        operator.disable().await.unwrap(),
        Err(Refusal::IntakeIsOpen),
        "the buckets' intake is open"
    );

    assert_eq!(operator.open_intake().await.unwrap(), Ok(()));
    assert_eq!(operator.intake().await.unwrap(), Intake::Open);
    world.append(1).await;
}

async fn delete_removes_pending_events_behind_buckets(world: World, minutes: Minutes) {
    let exporter = with_buckets(&world, &minutes);
    let operator = Operator::new(&exporter);
    operator.enable().await.unwrap();
    let _put = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();
    world.append(3).await;

    assert_eq!(operator.delete().await.unwrap(), Deleted::Done(1 + 3));

    assert_eq!(operator.pending().await.unwrap(), 0);
    assert_eq!(operator.list().await.unwrap(), []);
    assert_eq!(operator.open_intake().await.unwrap(), Ok(()));
    world.append(1).await;
}

async fn pending_events_are_counted_and_flushed(world: World, minutes: Minutes) {
    let exporter = with_buckets(&world, &minutes);
    let operator = Operator::new(&exporter);
    world.append(3).await;
    assert!(matches!(operator.flush(None).await.unwrap(), Flushed::Disabled));

    operator.enable().await.unwrap();
    let flushed = operator.flush(Some(2)).await.unwrap();

    assert!(matches!(flushed, Flushed::Done(exported) if exported.sent == 2));
    assert_eq!(operator.pending().await.unwrap(), 1);
}

async fn emergency_differs_from_operators_stop(world: World, minutes: Minutes) {
    let exporter = with_buckets(&world, &minutes);
    let operator = Operator::new(&exporter);
    assert!(!operator.is_emergency().await.unwrap());

    minutes.buckets.set_intake(Intake::Stopped(StopCause::Emergency)).await.unwrap();
    assert!(operator.is_emergency().await.unwrap());

    operator.stop_intake().await.unwrap();
    assert!(!operator.is_emergency().await.unwrap());
}

async fn export_cannot_be_disabled_while_intake_reopens_by_itself(world: World, minutes: Minutes) {
    let exporter = with_buckets(&world, &minutes);
    let operator = Operator::new(&exporter);
    operator.enable().await.unwrap();
    minutes.buckets.set_intake(Intake::Stopped(StopCause::Emergency)).await.unwrap();

    assert_eq!(operator.disable().await.unwrap(), Err(Refusal::IntakeOpensByItself));
    assert!(operator.is_enabled().await.unwrap());

    operator.stop_intake().await.unwrap();
    assert_eq!(operator.disable().await.unwrap(), Ok(()));
    let put_in = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();
    assert_eq!(put_in, PutIn::Stopped(StopCause::Operator));
}

async fn nothing_is_deleted_while_lease_is_held(world: World, minutes: Minutes) {
    let exporter = with_buckets(&world, &minutes);
    let operator = Operator::new(&exporter);
    let _put = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    let deleted = operator.delete().await.unwrap();

    let Deleted::Held(holder) = deleted else { panic!("{deleted:?}") };
    assert!(holder.holds(lease.grant()));
    assert_eq!(operator.list().await.unwrap().len(), 1);
    assert_eq!(operator.intake().await.unwrap(), Intake::Stopped(StopCause::Operator));
    lease.release().await.unwrap();
    assert_eq!(operator.delete().await.unwrap(), Deleted::Done(1));
}

async fn events_set_aside_are_counted_and_deleted(world: World, _: Minutes) {
    let exporter = world.exporter();
    let operator = Operator::new(&exporter);
    world.append(3).await;
    let read = world.buffer().read(token(1), None, ReadLimit::new(2, 1 << 20)).await.unwrap();
    let Fenced::Done(read) = read else { panic!("stale") };
    let positions: Vec<_> = read.iter().map(Pending::position).collect();
    assert_eq!(world.buffer().set_aside(token(1), &positions).await.unwrap(), Fenced::Done(2));
    // A repeated call changes nothing. A call with a stale token is refused.
    assert_eq!(world.buffer().set_aside(token(2), &positions).await.unwrap(), Fenced::Done(0));
    let stale = world.buffer().set_aside(token(1), &positions).await.unwrap();
    assert_eq!(stale, Fenced::Stale { largest: token(2) });

    assert_eq!(operator.num_set_aside().await.unwrap(), 2);
    assert_eq!(operator.pending().await.unwrap(), 1);
    assert_eq!(operator.delete_aside().await.unwrap(), Deleted::Done(2));
    assert_eq!(operator.num_set_aside().await.unwrap(), 0);
    assert_eq!(operator.pending().await.unwrap(), 1);
}
