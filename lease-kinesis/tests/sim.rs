//! Tests of the simulated stream against the rules of Kinesis.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::StreamExt;
use lease_kinesis::{
    Faults, Fetched, ReadFrom, Shard, ShardId, ShardIterator, SimStream, Source, SourceError,
    SourceErrorKind, hash_key_of,
};
use tokio::time::sleep;

const HALF: u128 = 1 << 127;

const KIB: usize = 1024;

fn first(stream: &SimStream) -> ShardId {
    stream.open_shards()[0].id.clone()
}

async fn oldest(stream: &SimStream, shard: &ShardId) -> ShardIterator {
    stream.iterator(shard, &ReadFrom::TrimHorizon).await.unwrap()
}

async fn read(stream: &SimStream, shard: &ShardId, from: ReadFrom) -> Fetched {
    let iterator = stream.iterator(shard, &from).await.unwrap();
    stream.fetch(&iterator, 100).await.unwrap()
}

fn data(fetched: &Fetched) -> Vec<&[u8]> {
    fetched.records.iter().map(|record| &record.data[..]).collect()
}

fn kind<T>(answer: Result<T, SourceError>) -> SourceErrorKind {
    answer.map(drop).unwrap_err().kind()
}

fn ids(shards: &[Shard]) -> Vec<ShardId> {
    shards.iter().map(|shard| shard.id.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn shards_cover_all_hash_keys() {
    for count in [1, 2, 3, 7, 1000] {
        let shards = SimStream::new(count).shards().await.unwrap();

        assert_eq!(shards.len(), usize::from(count));
        assert_eq!(shards[0].hash_keys.first(), 0);
        assert_eq!(shards.last().unwrap().hash_keys.last(), u128::MAX);
        for pair in shards.windows(2) {
            assert_eq!(pair[0].hash_keys.last() + 1, pair[1].hash_keys.first());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn record_goes_to_shard_of_its_hash_key() {
    let stream = SimStream::new(2);
    let shards = ids(&stream.open_shards());

    let low = stream.put_with_hash_key("key", HALF - 1, "low");
    let high = stream.put_with_hash_key("key", HALF, "high");

    assert_eq!([low.shard, high.shard], *shards);
    assert!(low.record.sequence < high.record.sequence);
    assert!(low.record.sequence.as_str().len() > u128::MAX.to_string().len());
}

#[tokio::test(start_paused = true)]
async fn reading_starts_at_requested_position() {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    stream.put("key", "1");
    sleep(Duration::from_secs(10)).await;
    let second = stream.put("key", "2");
    sleep(Duration::from_secs(10)).await;
    stream.put("key", "3");

    let at_second = ReadFrom::At(second.record.sequence);
    let since_second = ReadFrom::Timestamp(stream.wall_clock() - 10_000);
    let now = ReadFrom::Timestamp(stream.wall_clock() - 9_999);

    assert_eq!(data(&read(&stream, &shard, ReadFrom::TrimHorizon).await), [b"1", b"2", b"3"]);
    assert_eq!(data(&read(&stream, &shard, at_second).await), [b"2", b"3"]);
    assert_eq!(data(&read(&stream, &shard, since_second).await), [b"2", b"3"]);
    assert_eq!(data(&read(&stream, &shard, now).await), [b"3"]);
    sleep(Duration::from_secs(1)).await;
    let latest = stream.iterator(&shard, &ReadFrom::Latest).await.unwrap();
    stream.put("key", "4");
    assert_eq!(data(&stream.fetch(&latest, 100).await.unwrap()), [b"4"]);
}

#[tokio::test(start_paused = true)]
async fn positions_outside_of_shard_are_refused() {
    let stream = SimStream::new(2);
    let shards = ids(&stream.open_shards());
    stream.split(&shards[0], 1 << 126).unwrap();
    let later = stream.put_with_hash_key("key", u128::MAX, "after the split");

    for from in [
        ReadFrom::At(later.record.sequence.clone()),
        ReadFrom::At("7".parse().unwrap()),
        ReadFrom::Timestamp(stream.wall_clock() + 1),
    ] {
        let answer = stream.iterator(&shards[0], &from).await;
        assert_eq!(kind(answer), SourceErrorKind::Refused, "{from:?}");
    }
    let unknown = "shardId-999999999999".parse().unwrap();
    let answer = stream.iterator(&unknown, &ReadFrom::Latest).await;
    assert_eq!(kind(answer), SourceErrorKind::NoSuchShard);
}

#[tokio::test(start_paused = true)]
async fn split_shard_ends_and_children_continue() {
    let stream = SimStream::new(1);
    let parent = first(&stream);
    let before = stream.put_with_hash_key("key", HALF, "before");
    let (low, high) = stream.split(&parent, HALF).unwrap();
    let after = stream.put_with_hash_key("key", HALF, "after");

    let fetched = read(&stream, &parent, ReadFrom::TrimHorizon).await;

    assert_eq!(fetched.records, std::slice::from_ref(&before.record));
    assert!(fetched.next.is_none());
    assert_eq!(ids(&fetched.children), [low.clone(), high.clone()]);
    let listed = stream.shards().await.unwrap();
    let [old, below, above] = &listed[..] else { panic!("{listed:?}") };
    assert!(!old.is_open() && below.is_open() && above.is_open());
    assert_eq!(below.parents, std::slice::from_ref(&parent));
    assert_eq!((below.hash_keys.first(), below.hash_keys.last()), (0, HALF - 1));
    assert_eq!((above.hash_keys.first(), above.hash_keys.last()), (HALF, u128::MAX));
    assert!(before.record.sequence < *old.ends.as_ref().unwrap());
    assert!(old.ends.as_ref().unwrap() < &below.begins);
    assert_eq!(after.shard, high);
    assert_eq!(kind(stream.split(&parent, HALF)), SourceErrorKind::Refused);
    assert_eq!(kind(stream.split(&low, HALF)), SourceErrorKind::Refused);
    assert_eq!(kind(stream.split(&low, 0)), SourceErrorKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn merged_shard_has_both_parents() {
    let stream = SimStream::new(3);
    let shards = ids(&stream.open_shards());
    assert_eq!(kind(stream.merge(&shards[0], &shards[2])), SourceErrorKind::Refused);

    let child = stream.merge(&shards[1], &shards[0]).unwrap();

    let listed = stream.shards().await.unwrap();
    let merged = listed.iter().find(|shard| shard.id == child).unwrap();
    assert_eq!(merged.parents, [shards[1].clone(), shards[0].clone()]);
    assert_eq!(merged.hash_keys.first(), 0);
    for parent in &shards[..2] {
        let fetched = read(&stream, parent, ReadFrom::TrimHorizon).await;
        assert!(fetched.next.is_none());
        assert_eq!(fetched.children, std::slice::from_ref(merged));
    }
}

#[tokio::test(start_paused = true)]
async fn children_can_be_unreported_and_listed_late() {
    let lag = Duration::from_secs(3);
    let stream = SimStream::new(1).without_reported_children().with_late_listing(lag);
    let parent = first(&stream);

    let (low, high) = stream.split(&parent, HALF).unwrap();

    let fetched = read(&stream, &parent, ReadFrom::TrimHorizon).await;
    assert!(fetched.next.is_none() && fetched.children.is_empty());
    let listed = stream.shards().await.unwrap();
    assert_eq!(ids(&listed), std::slice::from_ref(&parent));
    assert!(!listed[0].is_open());
    sleep(lag).await;
    assert_eq!(ids(&stream.shards().await.unwrap()), [parent, low, high]);
}

#[tokio::test(start_paused = true)]
async fn old_records_then_closed_shard_are_trimmed() {
    let stream = SimStream::new(1);
    let parent = first(&stream);
    stream.put("key", "old");
    sleep(Duration::from_mins(1)).await;
    let young = stream.put("key", "young");
    let (low, _) = stream.split(&parent, HALF).unwrap();
    let iterator = oldest(&stream, &parent).await;

    sleep(Duration::from_secs(30)).await;
    stream.trim(Duration::from_mins(1));

    let fetched = stream.fetch(&iterator, 100).await.unwrap();
    assert_eq!(fetched.records, [young.record]);
    sleep(Duration::from_mins(1)).await;
    stream.trim(Duration::from_mins(1));
    assert_eq!(kind(stream.fetch(&iterator, 100).await), SourceErrorKind::NoSuchShard);
    let answer = stream.iterator(&parent, &ReadFrom::TrimHorizon).await;
    assert_eq!(kind(answer), SourceErrorKind::NoSuchShard);
    assert!(!ids(&stream.shards().await.unwrap()).contains(&parent));
    // An open shard stays, even if it is as old and as empty as a removed shard.
    assert!(read(&stream, &low, ReadFrom::TrimHorizon).await.next.is_some());
    assert_eq!(stream.put_by_partition_key()["key"].len(), 2, "the list has trimmed records, too");
}

#[tokio::test(start_paused = true)]
async fn iterator_expires_after_five_minutes() {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    let iterator = oldest(&stream, &shard).await;

    sleep(Duration::from_mins(5)).await;
    let next = stream.fetch(&iterator, 1).await.unwrap().next.unwrap();
    sleep(Duration::from_millis(1)).await;

    assert_eq!(kind(stream.fetch(&iterator, 1).await), SourceErrorKind::ExpiredIterator);
    stream.fetch(&next, 1).await.unwrap();
    let none = ShardIterator::new("none of this stream");
    assert_eq!(kind(stream.fetch(&none, 1).await), SourceErrorKind::ExpiredIterator);
}

#[tokio::test(start_paused = true)]
async fn shard_allows_five_fetches_a_second() {
    let stream = SimStream::new(2);
    let shards = ids(&stream.open_shards());
    let iterator = oldest(&stream, &shards[0]).await;
    let other = oldest(&stream, &shards[1]).await;

    for _ in 0..5 {
        stream.fetch(&iterator, 1).await.unwrap();
    }

    assert_eq!(kind(stream.fetch(&iterator, 1).await), SourceErrorKind::Throttled);
    stream.fetch(&other, 1).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    stream.fetch(&iterator, 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn large_answer_delays_next_fetch_at_two_megabytes_a_second() {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    stream.put_all((0..12).map(|_| ("key", vec![0; 1024 * KIB])));
    let iterator = oldest(&stream, &shard).await;

    let fetched = stream.fetch(&iterator, 10_000).await.unwrap();

    assert_eq!(fetched.records.len(), 9, "10 MB, partition keys included");
    assert!(!fetched.behind.is_zero());
    let next = fetched.next.unwrap();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(kind(stream.fetch(&next, 10_000).await), SourceErrorKind::Throttled);
    sleep(Duration::from_secs(1)).await;
    let rest = stream.fetch(&next, 10_000).await.unwrap();
    assert_eq!(rest.records.len(), 3);
    assert!(rest.behind.is_zero());
}

#[tokio::test(start_paused = true)]
async fn answer_has_at_most_requested_records() {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    stream.put_all((0..10_005).map(|number| ("key", number.to_string())));
    let iterator = oldest(&stream, &shard).await;

    assert_eq!(kind(stream.fetch(&iterator, 0).await), SourceErrorKind::Refused);
    assert_eq!(kind(stream.fetch(&iterator, 10_001).await), SourceErrorKind::Refused);
    let many = stream.fetch(&iterator, 10_000).await.unwrap();
    assert_eq!(many.records.len(), 10_000);
    let rest = stream.fetch(&many.next.unwrap(), 10_000).await.unwrap();
    assert_eq!(data(&rest)[..2], [b"10000", b"10001"]);
}

#[tokio::test(start_paused = true)]
async fn fetch_reports_how_far_reader_is_behind() {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    stream.put_all([("key", "1"), ("key", "2")]);
    sleep(Duration::from_secs(7)).await;
    let iterator = oldest(&stream, &shard).await;

    let one = stream.fetch(&iterator, 1).await.unwrap();
    let other = stream.fetch(&one.next.unwrap(), 1).await.unwrap();

    assert_eq!(one.behind, Duration::from_secs(7));
    assert_eq!(other.behind, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn subscription_pushes_records_as_they_arrive() {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    stream.put("key", "before");
    let mut pushed = stream.subscribe(&shard, &ReadFrom::TrimHorizon).await.unwrap();
    assert_eq!(data(&pushed.next().await.unwrap().unwrap()), [b"before"]);

    let ((), ()) = tokio::join!(
        async {
            let fetched = pushed.next().await.unwrap().unwrap();
            assert_eq!(data(&fetched), [b"after"]);
        },
        async {
            sleep(Duration::from_secs(1)).await;
            stream.put("key", "after");
        }
    );
    stream.split(&shard, HALF).unwrap();

    let end = pushed.next().await.unwrap().unwrap();
    assert!(end.next.is_none());
    assert_eq!(end.children.len(), 2);
    assert!(pushed.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn subscription_without_records_pushes_and_ends() {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    let begun = stream.wall_clock();

    let pushed = stream.subscribe(&shard, &ReadFrom::Latest).await.unwrap();
    let pushes: Vec<_> = pushed.collect().await;

    assert_eq!(stream.wall_clock() - begun, 300_000);
    assert_eq!(pushes.len(), 59);
    assert!(pushes.iter().all(|push| push.as_ref().unwrap().records.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn later_subscription_replaces_earlier_one() {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    let mut earlier = stream.subscribe(&shard, &ReadFrom::Latest).await.unwrap();

    sleep(Duration::from_millis(4_999)).await;
    let too_soon = stream.subscribe(&shard, &ReadFrom::Latest).await;
    assert_eq!(kind(too_soon), SourceErrorKind::Throttled);
    let other_consumer = stream.with_consumer("other");
    let mut other = other_consumer.subscribe(&shard, &ReadFrom::Latest).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    let mut later = stream.subscribe(&shard, &ReadFrom::Latest).await.unwrap();
    stream.put("key", "1");

    assert!(earlier.next().await.is_none());
    assert_eq!(data(&later.next().await.unwrap().unwrap()), [b"1"]);
    assert_eq!(data(&other.next().await.unwrap().unwrap()), [b"1"]);
}

#[tokio::test(start_paused = true)]
async fn pushes_are_limited_to_two_megabytes_a_second() {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    stream.put_all((0..16).map(|_| ("key", vec![0; 1024 * KIB - 3])));
    let begun = stream.wall_clock();

    let mut pushed = stream.subscribe(&shard, &ReadFrom::TrimHorizon).await.unwrap();
    let mut records = 0;
    while records < 16 {
        records += pushed.next().await.unwrap().unwrap().records.len();
    }

    assert_eq!(stream.wall_clock() - begun, 8_000);
}

async fn answers(seed: u64) -> Vec<String> {
    let stream = SimStream::new(1);
    let shard = first(&stream);
    let faults =
        Faults { throttled: 0.2, unavailable: 0.2, empty: 0.3, delay: Duration::from_millis(300) };
    let reader = stream.with_faults(seed, faults);
    let iterator = oldest(&stream, &shard).await;
    stream.put("key", "1");

    let mut answers = Vec::new();
    for _ in 0..100 {
        let answer = reader.fetch(&iterator, 10).await;
        let answer = answer.map(|fetched| fetched.records.len()).map_err(|error| error.kind());
        answers.push(format!("{} {answer:?}", reader.wall_clock()));
        sleep(Duration::from_millis(200)).await;
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn same_seed_causes_same_faults() {
    let one = answers(7).await;

    assert_eq!(one, answers(7).await);
    assert_ne!(one, answers(8).await);
    for expected in ["Ok(0)", "Ok(1)", "Err(Throttled)", "Err(Unavailable)"] {
        assert!(one.iter().any(|answers| answers.ends_with(expected)), "{expected}: {one:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn faults_affect_one_handle_and_its_clones() {
    let stream = SimStream::new(1);
    let cut_off = stream.with_faults(1, Faults { unavailable: 1.0, ..Faults::default() });
    let clone = cut_off.clone();

    assert_eq!(kind(cut_off.shards().await), SourceErrorKind::Unavailable);
    assert_eq!(kind(clone.shards().await), SourceErrorKind::Unavailable);
    stream.shards().await.unwrap();
    cut_off.set_faults(Faults::default());
    clone.shards().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shard_accepts_1000_records_a_second() {
    let stream = SimStream::new(2);
    let [one, other] = [0, 1].map(|shard: usize| {
        let hash_keys = stream.open_shards()[shard].hash_keys;
        let mut keys = (0..).map(|number| format!("key-{number}"));
        keys.find(|key| hash_keys.contains(hash_key_of(key))).unwrap()
    });
    for number in 0..600 {
        stream.try_put(&one, number.to_string()).unwrap();
    }
    sleep(Duration::from_millis(500)).await;
    for number in 600..1_000 {
        stream.try_put(&one, number.to_string()).unwrap();
    }

    assert_eq!(kind(stream.try_put(&one, "too many")), SourceErrorKind::Throttled);
    assert!(stream.try_put(&other, "into another shard").is_ok());
    assert_eq!(stream.everything_put().len(), 1_001, "refused records are not written");
    sleep(Duration::from_millis(500)).await;
    for number in 0..600 {
        stream.try_put(&one, number.to_string()).unwrap();
    }
    assert_eq!(kind(stream.try_put(&one, "too many")), SourceErrorKind::Throttled);
}

#[tokio::test(start_paused = true)]
async fn shard_accepts_1_megabyte_a_second_with_partition_keys() {
    let stream = SimStream::new(1);
    let half = vec![0; 512 * KIB - "key".len()];
    stream.try_put("key", half.clone()).unwrap();
    stream.try_put("key", half.clone()).unwrap();

    assert_eq!(kind(stream.try_put("key", "")), SourceErrorKind::Throttled);
    stream.put("key", half.clone());
    sleep(Duration::from_secs(1)).await;
    stream.try_put("key", half.clone()).unwrap();
    stream.try_put("key", half.clone()).unwrap();
    assert_eq!(kind(stream.try_put("key", "")), SourceErrorKind::Throttled);
    assert!(stream.without_limits().try_put("key", half).is_ok());
}
