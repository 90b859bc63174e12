//! Tests of bucket stores: closing, reading and removing buckets.

use std::time::Duration;

use lease_export::{Bucket, BucketStore, Entry, Fenced, Intake, PutIn, StopCause};
use lease_test_servers::warnings::Warnings;

use crate::world::{MINUTE, Minutes, World, everywhere_with_buckets, read_all, token};

everywhere_with_buckets! {
    empty_store_has_no_closed_bucket
    bucket_closes_after_interval_and_margin
    current_bucket_is_open
    bucket_stays_open_during_margin
    reading_starts_after_the_marker
    late_change_goes_after_marker_in_future
    key_keeps_its_latest_value
    closed_returns_at_most_the_requested_number
    marker_is_the_last_removed_bucket
    removing_the_first_bucket_keeps_the_others
    removing_a_middle_bucket_keeps_the_others
    removing_the_last_bucket_keeps_the_others
    removing_an_absent_bucket_keeps_all
    unread_bucket_is_not_removed_with_an_earlier_one
    stale_token_removes_no_bucket
    list_returns_buckets_of_range_with_key_counts
    put_creates_a_bucket
    store_at_cap_takes_nothing_until_drained
    second_stop_at_cap_is_not_logged
    operators_stop_outlasts_draining
    clear_needs_a_stopped_intake
    large_bucket_is_read_in_pieces_each_entry_once
}

const MARGIN: Duration = Duration::from_secs(10);

async fn put(minutes: &Minutes, key: &str, value: &str) -> Bucket {
    match minutes.buckets.put(&[(key, Some(value))]).await.unwrap() {
        PutIn::Bucket(bucket) => bucket,
        stopped @ PutIn::Stopped(_) => panic!("{stopped:?}"),
    }
}

async fn fill(minutes: &mut Minutes, count: usize) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    for number in 0..count {
        if number > 0 {
            minutes.pass(MINUTE).await;
        }
        buckets.push(put(minutes, "a", &number.to_string()).await);
    }
    assert!(buckets.windows(2).all(|pair| pair[1].seconds() == pair[0].seconds() + 60));
    buckets
}

async fn all(minutes: &Minutes) -> Vec<Bucket> {
    let listed = minutes.buckets.list(Bucket::MIN..=Bucket::MAX).await.unwrap();
    listed.into_iter().map(|(bucket, _)| bucket).collect()
}

async fn remove(minutes: &Minutes, buckets: &[Bucket]) -> u64 {
    match minutes.buckets.remove(token(1), buckets).await.unwrap() {
        Fenced::Done(removed) => removed,
        stale @ Fenced::Stale { .. } => panic!("{stale:?}"),
    }
}

async fn empty_store_has_no_closed_bucket(_: World, minutes: Minutes) {
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), []);
    assert_eq!(minutes.buckets.marker().await.unwrap(), None);
}

async fn bucket_closes_after_interval_and_margin(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    minutes.pass(MINUTE + MARGIN).await;

    assert_eq!(minutes.buckets.closed(60).await.unwrap(), buckets);
    assert_eq!(minutes.buckets.closed(usize::MAX).await.unwrap(), buckets);
}

async fn current_bucket_is_open(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 2).await;

    minutes.pass(MARGIN).await;

    assert_eq!(minutes.buckets.closed(60).await.unwrap(), buckets[..1]);
}

async fn bucket_stays_open_during_margin(_: World, mut minutes: Minutes) {
    let bucket = put(&minutes, "a", "1").await;

    // One second of the minute had passed before the put.
    minutes.pass(MINUTE).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), []);

    minutes.pass(MARGIN).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [bucket]);
}

async fn reading_starts_after_the_marker(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;
    minutes.pass(MINUTE + MARGIN).await;

    assert_eq!(remove(&minutes, &buckets[..1]).await, 1);

    assert_eq!(minutes.buckets.closed(60).await.unwrap(), buckets[1..]);
}

async fn late_change_goes_after_marker_in_future(_: World, mut minutes: Minutes) {
    let bucket = put(&minutes, "a", "1").await;
    let future = Bucket::starting_at(bucket.seconds() + 600);
    assert_eq!(remove(&minutes, &[future]).await, 0);

    minutes.pass(MINUTE + MARGIN).await;

    assert_eq!(minutes.buckets.closed(60).await.unwrap(), []);
    // The marker is ahead, as if the clock had gone back.
    let late = put(&minutes, "b", "2").await;
    assert_eq!(late.seconds(), future.seconds() + 60);
    minutes.pass(Duration::from_secs(700)).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [late]);
}

async fn key_keeps_its_latest_value(_: World, minutes: Minutes) {
    let bucket = put(&minutes, "a", "1").await;
    assert_eq!(put(&minutes, "b", "2").await, bucket);
    assert_eq!(put(&minutes, "a", "3").await, bucket);
    let gone = minutes.buckets.put(&[("c", None), ("d", Some(""))]).await.unwrap();
    assert_eq!(gone, PutIn::Bucket(bucket));

    let read = read_all(&*minutes.buckets, bucket).await;

    let read: Vec<_> =
        read.iter().map(|entry| (entry.key.as_str(), entry.value.as_deref())).collect();
    assert_eq!(read, [("a", Some("3")), ("b", Some("2")), ("c", None), ("d", Some(""))]);
}

async fn closed_returns_at_most_the_requested_number(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;
    minutes.pass(MINUTE + MARGIN).await;

    assert_eq!(minutes.buckets.closed(0).await.unwrap(), []);
    assert_eq!(minutes.buckets.closed(2).await.unwrap(), buckets[..2]);
    assert_eq!(minutes.buckets.closed(9).await.unwrap(), buckets);
}

async fn marker_is_the_last_removed_bucket(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &buckets[..2]).await, 2);
    assert_eq!(minutes.buckets.marker().await.unwrap(), Some(buckets[1]));

    assert_eq!(remove(&minutes, &buckets[..1]).await, 0);
    assert_eq!(minutes.buckets.marker().await.unwrap(), Some(buckets[1]));
}

async fn removing_the_first_bucket_keeps_the_others(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &buckets[..1]).await, 1);

    assert_eq!(all(&minutes).await, buckets[1..]);
    assert_eq!(read_all(&*minutes.buckets, buckets[0]).await, []);
}

async fn removing_a_middle_bucket_keeps_the_others(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &buckets[1..2]).await, 1);

    assert_eq!(all(&minutes).await, [buckets[0], buckets[2]]);
}

async fn removing_the_last_bucket_keeps_the_others(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &buckets[2..]).await, 1);

    assert_eq!(all(&minutes).await, buckets[..2]);
}

async fn removing_an_absent_bucket_keeps_all(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;
    let before = Bucket::starting_at(buckets[0].seconds() - 60);
    let after = Bucket::starting_at(buckets[2].seconds() + 60);

    assert_eq!(remove(&minutes, &[before]).await, 0);
    assert_eq!(remove(&minutes, &[after]).await, 0);

    assert_eq!(all(&minutes).await, buckets);
}

async fn unread_bucket_is_not_removed_with_an_earlier_one(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &[buckets[2], buckets[0]]).await, 2);

    let entries = read_all(&*minutes.buckets, buckets[1]).await;
    assert_eq!(entries.len(), 1);
}

async fn stale_token_removes_no_bucket(_: World, minutes: Minutes) {
    let bucket = put(&minutes, "a", "1").await;
    let done = minutes.buckets.remove(token(8), &[]).await.unwrap();
    assert_eq!(done, Fenced::Done(0));

    let stale = minutes.buckets.remove(token(7), &[bucket]).await.unwrap();

    assert_eq!(stale, Fenced::Stale { largest: token(8) });
    assert_eq!(all(&minutes).await, [bucket]);
    assert_eq!(minutes.buckets.marker().await.unwrap(), None);
}

async fn list_returns_buckets_of_range_with_key_counts(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;
    put(&minutes, "b", "1").await;
    let list = async |from: Bucket, to: Bucket| minutes.buckets.list(from..=to).await.unwrap();
    let [first, second, third] = [buckets[0], buckets[1], buckets[2]];

    assert_eq!(list(Bucket::MIN, Bucket::MAX).await, [(first, 1), (second, 1), (third, 2)]);
    assert_eq!(list(first, second).await, [(first, 1), (second, 1)]);
    assert_eq!(list(second, second).await, [(second, 1)]);
    assert_eq!(list(second, Bucket::MAX).await, [(second, 1), (third, 2)]);
    assert_eq!(list(third, first).await, []);
}

async fn put_creates_a_bucket(_: World, minutes: Minutes) {
    assert_eq!(all(&minutes).await, []);

    let bucket = put(&minutes, "a", "1").await;

    assert_eq!(all(&minutes).await, [bucket]);
}

const EMERGENCY: StopCause = StopCause::Emergency;

async fn store_at_cap_takes_nothing_until_drained(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 5).await;
    assert_eq!(put(&minutes, "b", "1").await, buckets[4]);
    minutes.pass(MINUTE).await;

    let (warnings, listening) = Warnings::listen();
    for _ in 0..2 {
        let put_in = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();
        assert_eq!(put_in, PutIn::Stopped(EMERGENCY));
    }
    drop(listening);
    let lines = warnings.lines();
    assert_eq!(lines.len(), 1, "the log should have one stop: {lines:?}");
    assert!(lines[0].contains("cap reached cap=5"), "{lines:?}");
    assert_eq!(minutes.buckets.intake().await.unwrap(), Intake::Stopped(EMERGENCY));

    assert_eq!(remove(&minutes, &buckets[..4]).await, 4);
    let put_in = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();
    assert_eq!(put_in, PutIn::Stopped(EMERGENCY), "not drained yet");

    assert_eq!(remove(&minutes, &buckets[4..]).await, 1);
    put(&minutes, "a", "1").await;
    assert_eq!(minutes.buckets.intake().await.unwrap(), Intake::Open);
}

async fn second_stop_at_cap_is_not_logged(_: World, mut minutes: Minutes) {
    fill(&mut minutes, 5).await;
    minutes.pass(MINUTE).await;
    let stopped = Intake::Stopped(StopCause::Operator);
    assert_eq!(minutes.buckets.set_intake(stopped).await.unwrap(), Intake::Open);

    let (warnings, listening) = Warnings::listen();
    let put_in = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();
    drop(listening);

    assert_eq!(warnings.lines(), Vec::<String>::new());
    assert_eq!(put_in, PutIn::Stopped(StopCause::Operator));
    let emergency = Intake::Stopped(EMERGENCY);
    assert_eq!(minutes.buckets.set_intake(emergency).await.unwrap(), stopped);
    assert_eq!(minutes.buckets.intake().await.unwrap(), stopped);
}

async fn operators_stop_outlasts_draining(_: World, minutes: Minutes) {
    minutes.buckets.set_intake(Intake::Stopped(StopCause::Operator)).await.unwrap();

    let put_in = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();

    assert_eq!(put_in, PutIn::Stopped(StopCause::Operator));
    assert_eq!(all(&minutes).await, []);
}

async fn clear_needs_a_stopped_intake(_: World, mut minutes: Minutes) {
    fill(&mut minutes, 2).await;

    assert_eq!(minutes.buckets.clear().await.unwrap(), None);
    assert_eq!(all(&minutes).await.len(), 2);

    minutes.buckets.set_intake(Intake::Stopped(StopCause::Operator)).await.unwrap();
    assert_eq!(minutes.buckets.clear().await.unwrap(), Some(2));
    assert_eq!(all(&minutes).await, []);
}

async fn large_bucket_is_read_in_pieces_each_entry_once(_: World, minutes: Minutes) {
    let (bucket, keys) = put_large(&minutes).await;

    let read = read_in_pieces(&minutes, bucket, Remove::EachPiece).await;

    assert_eq!(read, keys);
}

/// One step of HSCAN returns the whole bucket.
#[tokio::test(flavor = "multi_thread")]
async fn bucket_in_one_listpack_is_read_in_pieces() {
    let options = ["--hash-max-listpack-entries", "10000", "--hash-max-listpack-value", "100000"];
    for remove in [Remove::Nothing, Remove::EachPiece] {
        let minutes = Minutes::on_redis_with(crate::world::minutes(), &options).await;
        let Some(minutes) = minutes else { return };
        let (bucket, keys) = put_large(&minutes).await;

        let read = read_in_pieces(&minutes, bucket, remove).await;

        assert_eq!(read, keys);
    }
}

async fn put_large(minutes: &Minutes) -> (Bucket, Vec<String>) {
    let value = "x".repeat(10_000);
    let keys: Vec<_> = (0..1_000).map(|number| format!("key-{number:04}")).collect();
    let changes: Vec<_> = keys.iter().map(|key| (key.as_str(), Some(value.as_str()))).collect();
    match minutes.buckets.put(&changes).await.unwrap() {
        PutIn::Bucket(bucket) => (bucket, keys),
        stopped @ PutIn::Stopped(_) => panic!("{stopped:?}"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Remove {
    Nothing,
    EachPiece,
}

async fn read_in_pieces(minutes: &Minutes, bucket: Bucket, remove: Remove) -> Vec<String> {
    let (mut read, mut from) = (Vec::new(), None);
    loop {
        let piece = minutes.buckets.read(bucket, from.as_deref(), 1_000_000).await.unwrap();
        let bytes: usize = piece.entries.iter().map(Entry::bytes).sum();
        assert!(bytes <= 1_000_000 + 11_000, "{bytes} bytes in a piece");
        let of_piece: Vec<_> = piece.entries.into_iter().map(|entry| entry.key).collect();
        if remove == Remove::EachPiece {
            let removed: Vec<_> = of_piece.iter().map(String::as_str).collect();
            let done = minutes.buckets.remove_keys(token(1), bucket, &removed).await.unwrap();
            assert_eq!(done, Fenced::Done(of_piece.len() as u64));
        }
        read.extend(of_piece);
        from = piece.next;
        if from.is_none() {
            read.sort_unstable();
            return read;
        }
    }
}

/// Runs only on Redis: the clock of the store in memory never goes back.
#[tokio::test(flavor = "multi_thread")]
async fn sealed_bucket_takes_nothing_after_clock_goes_back() {
    let Some(mut minutes) = Minutes::on_redis(crate::world::minutes()).await else { return };
    let bucket = put(&minutes, "a", "1").await;
    minutes.pass(MINUTE + MARGIN).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [bucket]);
    assert_eq!(read_all(&*minutes.buckets, bucket).await.len(), 1);

    minutes.go_back(MINUTE + MARGIN);
    let late = put(&minutes, "b", "2").await;

    assert!(late > bucket, "a sealed bucket should not change");
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [bucket]);
    assert_eq!(remove(&minutes, &[bucket]).await, 1);
    minutes.pass(MINUTE * 3).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [late]);
}
