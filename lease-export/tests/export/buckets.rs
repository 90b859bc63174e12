//! Buckets: when they are closed, what is in them, and what is removed.

use std::time::Duration;

use lease_export::{Bucket, BucketStore, Entry, Fenced, Intake, PutIn, StopCause};
use lease_test_servers::warnings::Warnings;

use crate::world::{MINUTE, Minutes, World, everywhere_with_buckets, read_all, token};

everywhere_with_buckets! {
    where_nothing_was_put_no_bucket_is_closed
    all_buckets_are_closed_once_their_time_is_over
    the_bucket_of_this_moment_is_open
    a_bucket_stays_open_for_the_margin
    reading_goes_on_after_the_marker
    behind_a_marker_in_the_future_nothing_is_read_and_nothing_is_put
    a_key_that_is_put_again_has_its_latest_value
    no_more_buckets_are_read_than_are_asked_for
    the_marker_is_the_last_bucket_that_was_removed
    removing_the_first_one_leaves_the_others
    removing_one_in_the_middle_leaves_the_others
    removing_the_last_one_leaves_the_others
    removing_what_is_not_there_leaves_all
    a_bucket_that_was_not_read_is_not_removed_with_an_earlier_one
    a_former_holder_removes_no_bucket
    buckets_are_listed_within_a_range_with_the_number_of_their_keys
    putting_makes_a_bucket
    at_its_cap_it_takes_nothing_until_it_is_drained
    what_was_stopped_at_the_cap_already_is_no_other
    what_an_operator_stopped_stays_stopped_when_it_is_drained
    only_what_is_stopped_is_cleared
    large_bucket_is_read_in_pieces_each_entry_once
}

const MARGIN: Duration = Duration::from_secs(10);

async fn put(minutes: &Minutes, key: &str, value: &str) -> Bucket {
    match minutes.buckets.put(&[(key, Some(value))]).await.unwrap() {
        PutIn::Bucket(bucket) => bucket,
        stopped @ PutIn::Stopped(_) => panic!("{stopped:?}"),
    }
}

/// Puts something into each of `count` buckets in a row.
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

async fn where_nothing_was_put_no_bucket_is_closed(_: World, minutes: Minutes) {
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), []);
    assert_eq!(minutes.buckets.marker().await.unwrap(), None);
}

async fn all_buckets_are_closed_once_their_time_is_over(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    minutes.pass(MINUTE + MARGIN).await;

    assert_eq!(minutes.buckets.closed(60).await.unwrap(), buckets);
    assert_eq!(minutes.buckets.closed(usize::MAX).await.unwrap(), buckets);
}

async fn the_bucket_of_this_moment_is_open(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 2).await;

    minutes.pass(MARGIN).await;

    assert_eq!(minutes.buckets.closed(60).await.unwrap(), buckets[..1]);
}

async fn a_bucket_stays_open_for_the_margin(_: World, mut minutes: Minutes) {
    let bucket = put(&minutes, "a", "1").await;

    // A second of its minute was over before.
    minutes.pass(MINUTE).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), []);

    minutes.pass(MARGIN).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [bucket]);
}

async fn reading_goes_on_after_the_marker(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;
    minutes.pass(MINUTE + MARGIN).await;

    assert_eq!(remove(&minutes, &buckets[..1]).await, 1);

    assert_eq!(minutes.buckets.closed(60).await.unwrap(), buckets[1..]);
}

async fn behind_a_marker_in_the_future_nothing_is_read_and_nothing_is_put(
    _: World,
    mut minutes: Minutes,
) {
    let bucket = put(&minutes, "a", "1").await;
    let future = Bucket::starting_at(bucket.seconds() + 600);
    assert_eq!(remove(&minutes, &[future]).await, 0);

    minutes.pass(MINUTE + MARGIN).await;

    assert_eq!(minutes.buckets.closed(60).await.unwrap(), []);
    // As if the clock had gone back: what comes now is read in the end.
    let late = put(&minutes, "b", "2").await;
    assert_eq!(late.seconds(), future.seconds() + 60);
    minutes.pass(Duration::from_secs(700)).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [late]);
}

async fn a_key_that_is_put_again_has_its_latest_value(_: World, minutes: Minutes) {
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

async fn no_more_buckets_are_read_than_are_asked_for(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;
    minutes.pass(MINUTE + MARGIN).await;

    assert_eq!(minutes.buckets.closed(0).await.unwrap(), []);
    assert_eq!(minutes.buckets.closed(2).await.unwrap(), buckets[..2]);
    assert_eq!(minutes.buckets.closed(9).await.unwrap(), buckets);
}

async fn the_marker_is_the_last_bucket_that_was_removed(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &buckets[..2]).await, 2);
    assert_eq!(minutes.buckets.marker().await.unwrap(), Some(buckets[1]));

    // It never goes back.
    assert_eq!(remove(&minutes, &buckets[..1]).await, 0);
    assert_eq!(minutes.buckets.marker().await.unwrap(), Some(buckets[1]));
}

async fn removing_the_first_one_leaves_the_others(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &buckets[..1]).await, 1);

    assert_eq!(all(&minutes).await, buckets[1..]);
    assert_eq!(read_all(&*minutes.buckets, buckets[0]).await, []);
}

async fn removing_one_in_the_middle_leaves_the_others(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &buckets[1..2]).await, 1);

    assert_eq!(all(&minutes).await, [buckets[0], buckets[2]]);
}

async fn removing_the_last_one_leaves_the_others(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &buckets[2..]).await, 1);

    assert_eq!(all(&minutes).await, buckets[..2]);
}

async fn removing_what_is_not_there_leaves_all(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 3).await;
    let before = Bucket::starting_at(buckets[0].seconds() - 60);
    let after = Bucket::starting_at(buckets[2].seconds() + 60);

    assert_eq!(remove(&minutes, &[before]).await, 0);
    assert_eq!(remove(&minutes, &[after]).await, 0);

    assert_eq!(all(&minutes).await, buckets);
}

async fn a_bucket_that_was_not_read_is_not_removed_with_an_earlier_one(
    _: World,
    mut minutes: Minutes,
) {
    let buckets = fill(&mut minutes, 3).await;

    assert_eq!(remove(&minutes, &[buckets[2], buckets[0]]).await, 2);

    let entries = read_all(&*minutes.buckets, buckets[1]).await;
    assert_eq!(entries.len(), 1);
}

async fn a_former_holder_removes_no_bucket(_: World, minutes: Minutes) {
    let bucket = put(&minutes, "a", "1").await;
    let done = minutes.buckets.remove(token(8), &[]).await.unwrap();
    assert_eq!(done, Fenced::Done(0));

    let stale = minutes.buckets.remove(token(7), &[bucket]).await.unwrap();

    assert_eq!(stale, Fenced::Stale { largest: token(8) });
    assert_eq!(all(&minutes).await, [bucket]);
    assert_eq!(minutes.buckets.marker().await.unwrap(), None);
}

async fn buckets_are_listed_within_a_range_with_the_number_of_their_keys(
    _: World,
    mut minutes: Minutes,
) {
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

async fn putting_makes_a_bucket(_: World, minutes: Minutes) {
    assert_eq!(all(&minutes).await, []);

    let bucket = put(&minutes, "a", "1").await;

    assert_eq!(all(&minutes).await, [bucket]);
}

const EMERGENCY: StopCause = StopCause::Emergency;

async fn at_its_cap_it_takes_nothing_until_it_is_drained(_: World, mut minutes: Minutes) {
    let buckets = fill(&mut minutes, 5).await;
    // The last of them still takes what belongs into it.
    assert_eq!(put(&minutes, "b", "1").await, buckets[4]);
    minutes.pass(MINUTE).await;

    let (warnings, listening) = Warnings::listen();
    for _ in 0..2 {
        let put_in = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();
        assert_eq!(put_in, PutIn::Stopped(EMERGENCY));
    }
    drop(listening);
    let lines = warnings.lines();
    assert_eq!(lines.len(), 1, "one stop: {lines:?}");
    assert!(lines[0].contains("their cap is reached cap=5"), "{lines:?}");
    assert_eq!(minutes.buckets.intake().await.unwrap(), Intake::Stopped(EMERGENCY));

    assert_eq!(remove(&minutes, &buckets[..4]).await, 4);
    let put_in = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();
    assert_eq!(put_in, PutIn::Stopped(EMERGENCY), "not drained yet");

    assert_eq!(remove(&minutes, &buckets[4..]).await, 1);
    put(&minutes, "a", "1").await;
    assert_eq!(minutes.buckets.intake().await.unwrap(), Intake::Open);
}

async fn what_was_stopped_at_the_cap_already_is_no_other(_: World, mut minutes: Minutes) {
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

async fn what_an_operator_stopped_stays_stopped_when_it_is_drained(_: World, minutes: Minutes) {
    minutes.buckets.set_intake(Intake::Stopped(StopCause::Operator)).await.unwrap();

    let put_in = minutes.buckets.put(&[("a", Some("1"))]).await.unwrap();

    assert_eq!(put_in, PutIn::Stopped(StopCause::Operator));
    assert_eq!(all(&minutes).await, []);
}

async fn only_what_is_stopped_is_cleared(_: World, mut minutes: Minutes) {
    fill(&mut minutes, 2).await;

    assert_eq!(minutes.buckets.clear().await.unwrap(), None);
    assert_eq!(all(&minutes).await.len(), 2);

    minutes.buckets.set_intake(Intake::Stopped(StopCause::Operator)).await.unwrap();
    assert_eq!(minutes.buckets.clear().await.unwrap(), Some(2));
    assert_eq!(all(&minutes).await, []);
}

async fn large_bucket_is_read_in_pieces_each_entry_once(_: World, minutes: Minutes) {
    let value = "x".repeat(10_000);
    let keys: Vec<_> = (0..1_000).map(|number| format!("key-{number:04}")).collect();
    let changes: Vec<_> = keys.iter().map(|key| (key.as_str(), Some(value.as_str()))).collect();
    let PutIn::Bucket(bucket) = minutes.buckets.put(&changes).await.unwrap() else {
        panic!("it is open")
    };

    let (mut read, mut from) = (Vec::new(), None);
    loop {
        let piece = minutes.buckets.read(bucket, from.as_deref(), 1_000_000).await.unwrap();
        let bytes: usize = piece.entries.iter().map(Entry::bytes).sum();
        assert!(bytes <= 1_000_000 + 32 * 11_000, "{bytes} bytes in a piece");
        let of_piece: Vec<_> = piece.entries.into_iter().map(|entry| entry.key).collect();
        let removed: Vec<_> = of_piece.iter().map(String::as_str).collect();
        // What was read may be removed before the next piece is read.
        let done = minutes.buckets.remove_keys(token(1), bucket, &removed).await.unwrap();
        assert_eq!(done, Fenced::Done(of_piece.len() as u64));
        read.extend(of_piece);
        from = piece.next;
        if from.is_none() {
            break;
        }
    }

    read.sort_unstable();
    assert_eq!(read, keys);
}

/// In memory no clock goes back.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_told_to_be_closed_takes_nothing_more_when_the_clock_goes_back() {
    let Some(mut minutes) = Minutes::on_redis(crate::world::minutes()).await else { return };
    let bucket = put(&minutes, "a", "1").await;
    minutes.pass(MINUTE + MARGIN).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [bucket]);
    assert_eq!(read_all(&*minutes.buckets, bucket).await.len(), 1);

    minutes.go_back(MINUTE + MARGIN);
    let late = put(&minutes, "b", "2").await;

    assert!(late > bucket, "what is being read stays as it was");
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [bucket]);
    assert_eq!(remove(&minutes, &[bucket]).await, 1);
    minutes.pass(MINUTE * 3).await;
    assert_eq!(minutes.buckets.closed(60).await.unwrap(), [late]);
}
