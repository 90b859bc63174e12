//! Collects from buckets through a pipeline into the buffer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lease_export::{
    Appended, Bucket, BucketSource, BucketStore, Capacity, EventBuffer, Exporter, Intake, Overflow,
    Pipeline, PutIn, Scheduled, StopCause, Worked,
};
use lease_test_servers::warnings::Warnings;
use serde_json::{Map, Value};

use crate::world::{
    MINUTE, Minutes, World, event, everywhere_with_buckets, minutes, read_all, run,
};

everywhere_with_buckets! {
    job_sends_closed_buckets_and_removes_exactly_these
    job_without_closed_buckets_changes_nothing
    key_of_several_buckets_is_sent_once_with_latest_value
    bad_entry_does_not_block_the_rest
    job_reads_at_most_its_number_of_buckets
    many_jobs_send_each_key_once
    crash_before_removal_makes_the_same_events_again
    full_buffer_stops_buckets_and_loses_nothing
    full_buffer_keeps_an_earlier_stop_of_the_buckets
    bucket_larger_than_the_buffer_moves_in_parts
    bad_later_value_does_not_hide_good_earlier_one
}

pub(crate) const CLOSED: Duration = Duration::from_secs(70);

pub(crate) fn pipeline() -> Pipeline {
    Pipeline::new(|entry, value| {
        let value: i64 = value.parse().map_err(|_| format!("{value:?} is not a number"))?;
        let body = [("key", Value::from(entry.key.as_str())), ("value", value.into())];
        Ok(body.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
    })
    .without_keys_containing(["/week", "/eternity"])
}

async fn exporter(world: &World, minutes: &Minutes) -> Exporter {
    let source = BucketSource::new(Arc::clone(&minutes.buckets), pipeline());
    world.enabled().await.with_source(source)
}

pub(crate) async fn put(minutes: &Minutes, changes: &[(&str, Option<&str>)]) -> u64 {
    match minutes.buckets.put(changes).await.unwrap() {
        PutIn::Bucket(bucket) => bucket.seconds(),
        stopped @ PutIn::Stopped(_) => panic!("{stopped:?}"),
    }
}

fn stops(warnings: &Warnings) -> Vec<String> {
    let is_stop = |line: &String| line.contains("stopped until drained");
    warnings.lines().into_iter().filter(is_stop).collect()
}

/// Events with the same id must be equal.
fn arrived(world: &World) -> BTreeMap<String, Map<String, Value>> {
    let mut arrived = BTreeMap::new();
    for (_, record) in world.sink.taken() {
        for line in std::str::from_utf8(record.data()).unwrap().lines() {
            let body: Map<String, Value> = serde_json::from_str(line).unwrap();
            let id = body["event_id"].as_str().unwrap().to_owned();
            let before = arrived.insert(id, body.clone());
            assert!(before.is_none_or(|before| before == body), "two events with the same id");
        }
    }
    arrived
}

pub(crate) fn values(world: &World) -> Vec<(String, i64)> {
    let value = |body: &Map<String, Value>| {
        (body["key"].as_str().unwrap().to_owned(), body["value"].as_i64().unwrap())
    };
    arrived(world).values().map(value).collect()
}

async fn job_sends_closed_buckets_and_removes_exactly_these(world: World, mut minutes: Minutes) {
    let exporter = exporter(&world, &minutes).await;
    let first = put(&minutes, &[("a", Some("1")), ("a/week", Some("7"))]).await;
    minutes.pass(CLOSED).await;
    put(&minutes, &[("b", Some("2"))]).await;

    let exported = run(&exporter).await;

    assert_eq!((exported.collected, exported.sent, exported.bad), (1, 1, 0));
    assert_eq!(exported.filtered, 1);
    assert_eq!(values(&world), [("a".to_owned(), 1)]);
    assert!(arrived(&world).contains_key(&format!("{first}/a")));
    assert_eq!(minutes.buckets.marker().await.unwrap().unwrap().seconds(), first);
    minutes.pass(CLOSED).await;
    assert_eq!(run(&exporter).await.sent, 1);
    assert_eq!(values(&world), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
}

async fn job_without_closed_buckets_changes_nothing(world: World, minutes: Minutes) {
    let exporter = exporter(&world, &minutes).await;
    put(&minutes, &[("a", Some("1"))]).await;

    let exported = run(&exporter).await;

    assert_eq!((exported.collected, exported.sent), (0, 0));
    assert_eq!(world.sink.requests(), [0; 0]);
    assert_eq!(minutes.buckets.marker().await.unwrap(), None);
    assert_eq!(minutes.buckets.closed(9).await.unwrap(), []);
}

async fn key_of_several_buckets_is_sent_once_with_latest_value(world: World, mut minutes: Minutes) {
    let exporter = exporter(&world, &minutes).await;
    put(&minutes, &[("a", Some("1")), ("b", Some("5"))]).await;
    minutes.pass(MINUTE).await;
    let second = put(&minutes, &[("a", Some("2"))]).await;
    minutes.pass(CLOSED).await;

    assert_eq!(run(&exporter).await.sent, 2);

    assert_eq!(values(&world), [("b".to_owned(), 5), ("a".to_owned(), 2)]);
    let stamp = &arrived(&world)[&format!("{second}/a")]["time_gen"];
    let expected = Bucket::starting_at(second).time_gen();
    assert_eq!(stamp.as_str(), Some(expected.as_str()));
}

async fn bad_entry_does_not_block_the_rest(world: World, mut minutes: Minutes) {
    let exporter = exporter(&world, &minutes).await;
    put(&minutes, &[("a", Some("many")), ("b", None), ("c", Some("3"))]).await;
    minutes.pass(CLOSED).await;

    let exported = run(&exporter).await;

    assert_eq!((exported.collected, exported.sent, exported.bad), (1, 1, 2));
    assert_eq!(values(&world), [("c".to_owned(), 3)]);
    assert_eq!(run(&exporter).await.bad, 0);
}

async fn job_reads_at_most_its_number_of_buckets(world: World, mut minutes: Minutes) {
    let source = BucketSource::new(Arc::clone(&minutes.buckets), pipeline()).with_max_buckets(2);
    let exporter = world.enabled().await.with_source(source);
    for number in ["1", "2", "3"] {
        put(&minutes, &[(number, Some(number))]).await;
        minutes.pass(MINUTE).await;
    }
    minutes.pass(CLOSED).await;

    assert_eq!(run(&exporter).await.sent, 2);
    assert_eq!(run(&exporter).await.sent, 1);
}

async fn many_jobs_send_each_key_once(world: World, mut minutes: Minutes) {
    let exporter = exporter(&world, &minutes).await;
    // Each bucket has a key of its own and one common key.
    for round in 0..4 {
        for number in 0..5 {
            let own = format!("key-{round}-{number}");
            put(&minutes, &[(&own, Some("1")), ("all", Some("1"))]).await;
            minutes.pass(MINUTE).await;
        }
        minutes.pass(CLOSED).await;
        assert_eq!(run(&exporter).await.sent, 6);
    }

    let values = values(&world);
    let own: BTreeSet<_> = values.iter().filter(|(key, _)| key != "all").collect();
    assert_eq!((own.len(), values.len()), (20, 24));
}

/// Each bucket has a key of its own and one common key.
async fn one_job_of_many_buckets_sends_each_key_once(world: World, mut minutes: Minutes) {
    let exporter = exporter(&world, &minutes).await;
    for number in 0..20 {
        put(&minutes, &[(&format!("key-{number:02}"), Some("1")), ("all", Some("1"))]).await;
        minutes.pass(MINUTE).await;
    }
    minutes.pass(CLOSED).await;

    let exported = run(&exporter).await;

    assert_eq!((exported.collected, exported.sent), (21, 21));
    let values = values(&world);
    let keys: BTreeSet<_> = values.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!((keys.len(), values.len()), (21, 21));
    assert_eq!(minutes.buckets.list(Bucket::MIN..=Bucket::MAX).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn one_job_of_many_buckets_sends_each_key_once_in_memory() {
    let minutes = Minutes::in_memory(minutes().with_cap(30).unwrap()).await;
    one_job_of_many_buckets_sends_each_key_once(World::in_memory(), minutes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_job_of_many_buckets_sends_each_key_once_on_redis() {
    let minutes = Minutes::on_redis(minutes().with_cap(30).unwrap()).await;
    if let (Some(world), Some(minutes)) = (World::on_redis().await, minutes) {
        one_job_of_many_buckets_sends_each_key_once(world, minutes).await;
    }
}

async fn crash_before_removal_makes_the_same_events_again(world: World, mut minutes: Minutes) {
    let exporter = exporter(&world, &minutes).await;
    put(&minutes, &[("a", Some("1")), ("b", Some("2"))]).await;
    let bucket = minutes.buckets.list(Bucket::MIN..=Bucket::MAX).await.unwrap()[0].0;
    minutes.pass(CLOSED).await;
    // The run crashes between the append and the removal. Then other keys change.
    let made = pipeline().run(read_all(&*minutes.buckets, bucket).await);
    let kept = world.buffer().append(&made.events).await.unwrap();
    assert_eq!(kept, Appended::Kept { dropped: 0 });
    put(&minutes, &[("a", Some("9"))]).await;

    assert_eq!(run(&exporter).await.sent, 4);

    // Each event arrives twice, but has one id and one value.
    assert_eq!(values(&world), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
}

async fn full_buffer_stops_buckets_and_loses_nothing(world: World, mut minutes: Minutes) {
    let world = world.with_capacity(Capacity::new(3, Overflow::Pause).unwrap());
    let exporter = exporter(&world, &minutes).await.with_min_per_job(1);
    world.append(2).await;
    put(&minutes, &[("a", Some("1")), ("b", Some("2"))]).await;
    minutes.pass(CLOSED).await;
    let (warnings, listening) = Warnings::listen();

    let exported = run(&exporter).await;
    drop(listening);

    // The buffer warns that it is full. Then the source warns that it stops the buckets.
    let lines = stops(&warnings);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("event buffer intake stopped until drained"), "{lines:?}");
    assert!(lines[1].contains("bucket intake stopped until drained"), "{lines:?}");
    assert_eq!((exported.collected, exported.sent), (0, 2));
    let emergency = Intake::Stopped(StopCause::Emergency);
    assert_eq!(minutes.buckets.intake().await.unwrap(), emergency);
    assert_eq!(
        minutes.buckets.put(&[("c", Some("3"))]).await.unwrap(),
        PutIn::Stopped(StopCause::Emergency)
    );

    assert_eq!(run(&exporter).await.sent, 2);
    put(&minutes, &[("c", Some("3"))]).await;
    assert_eq!(minutes.buckets.intake().await.unwrap(), Intake::Open);
}

async fn full_buffer_keeps_an_earlier_stop_of_the_buckets(world: World, mut minutes: Minutes) {
    let world = world.with_capacity(Capacity::new(1, Overflow::Refuse).unwrap());
    let exporter = exporter(&world, &minutes).await;
    put(&minutes, &[("a", Some("1")), ("b", Some("2"))]).await;
    let stopped = Intake::Stopped(StopCause::Operator);
    minutes.buckets.set_intake(stopped).await.unwrap();
    minutes.pass(CLOSED).await;
    let _kept = world.buffer().append(&[event(1)]).await.unwrap();

    let scheduled = exporter.schedule_job().await.unwrap();
    assert!(matches!(scheduled, Scheduled::Enqueued(_)), "{scheduled:?}");
    let (warnings, listening) = Warnings::listen();
    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();
    drop(listening);

    assert!(matches!(worked, Worked::Done(..)), "{worked:?}");
    assert_eq!(stops(&warnings), Vec::<String>::new(), "an earlier stop is not logged again");
    assert_eq!(minutes.buckets.intake().await.unwrap(), stopped);
}

async fn bucket_larger_than_the_buffer_moves_in_parts(world: World, mut minutes: Minutes) {
    let world = world.with_capacity(Capacity::new(3, Overflow::Pause).unwrap());
    let exporter = exporter(&world, &minutes).await;
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    put(&minutes, &keys.map(|key| (key, Some("1")))).await;
    put(&minutes, &[("bad", Some("many"))]).await;
    minutes.pass(CLOSED).await;

    let (mut sent, mut bad) = (0, 0);
    for _ in 0..3 {
        let exported = run(&exporter).await;
        sent += exported.sent;
        bad += exported.bad;
    }

    // Each event arrives once, since a step removes the entries that it moved.
    assert_eq!((sent, bad), (7, 1));
    assert_eq!(values(&world), keys.map(|key| (key.to_owned(), 1)));
    assert_eq!(minutes.buckets.list(Bucket::MIN..=Bucket::MAX).await.unwrap(), []);
}

async fn bad_later_value_does_not_hide_good_earlier_one(world: World, mut minutes: Minutes) {
    let exporter = exporter(&world, &minutes).await;
    put(&minutes, &[("a", Some("1")), ("b", Some("2"))]).await;
    minutes.pass(MINUTE).await;
    put(&minutes, &[("a", Some("many")), ("b", None)]).await;
    minutes.pass(CLOSED).await;

    let exported = run(&exporter).await;

    assert_eq!((exported.sent, exported.bad), (2, 2));
    assert_eq!(values(&world), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
}
