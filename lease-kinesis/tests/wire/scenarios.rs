//! Scenarios that every stream passes.

use futures_util::StreamExt;
use lease_kinesis::{Fetched, RawRecord, ReadFrom, Shard, ShardId, ShardIterator, SourceErrorKind};
use tokio::time::sleep;

use crate::test_stream::{TestStream, Until};

fn data(records: &[RawRecord]) -> Vec<&[u8]> {
    records.iter().map(|record| &record.data[..]).collect()
}

fn ids(shards: &[Shard]) -> Vec<ShardId> {
    let mut ids: Vec<_> = shards.iter().map(|shard| shard.id.clone()).collect();
    ids.sort();
    ids
}

pub(crate) async fn all_shards_are_listed(stream: &TestStream) {
    let mut shards = stream.shards().await;

    shards.sort_by_key(|shard| shard.hash_keys);
    assert_eq!(shards.len(), 3);
    assert_eq!(shards[0].hash_keys.first(), 0);
    assert_eq!(shards[2].hash_keys.last(), u128::MAX);
    for pair in shards.windows(2) {
        assert_eq!(pair[0].hash_keys.last() + 1, pair[1].hash_keys.first());
    }
    assert!(shards.iter().all(|shard| shard.is_open() && shard.parents.is_empty()));
}

pub(crate) async fn reading_starts_at_requested_position(stream: &TestStream) {
    let shard = stream.shards().await[0].clone();
    let hash_key = shard.hash_keys.first();
    let first = stream.put(hash_key, "1").await;
    stream.advance_arrival_time().await;
    let second = stream.put(hash_key, "2").await;
    assert!(first < second);

    let (all, _) = stream.read(&shard.id, ReadFrom::TrimHorizon, Until::Records(2)).await;
    assert_eq!(data(&all), [b"1", b"2"]);
    assert_eq!(all[1].sequence, second);
    assert_eq!(&*all[1].partition_key, "key");
    let (at_second, _) = stream.read(&shard.id, ReadFrom::At(second), Until::Records(1)).await;
    assert_eq!(at_second, all[1..]);
    let arrived = ReadFrom::Timestamp(all[1].arrived.unwrap());
    let (since_second, _) = stream.read(&shard.id, arrived, Until::Records(1)).await;
    assert_eq!(since_second, all[1..]);

    stream.pause_between_fetches().await;
    let latest = stream.iterator(&shard.id, ReadFrom::Latest).await;
    stream.put(hash_key, "3").await;
    let mut fetched = stream.source.fetch(&latest, 10).await.unwrap();
    while fetched.records.is_empty() {
        stream.pause_between_fetches().await;
        fetched = stream.source.fetch(&fetched.next.unwrap(), 10).await.unwrap();
    }
    assert_eq!(data(&fetched.records), [b"3"]);
}

pub(crate) async fn fetch_returns_at_most_requested_records(stream: &TestStream) {
    let shard = stream.shards().await[0].clone();
    for text in ["1", "2", "3"] {
        stream.put(shard.hash_keys.first(), text).await;
    }
    let iterator = stream.iterator(&shard.id, ReadFrom::TrimHorizon).await;

    let two = stream.source.fetch(&iterator, 2).await.unwrap();
    let rest = stream.source.fetch(&two.next.unwrap(), 2).await.unwrap();

    assert_eq!(data(&two.records), [b"1", b"2"]);
    assert_eq!(data(&rest.records), [b"3"]);
}

pub(crate) async fn split_shard_ends_and_children_are_found(stream: &TestStream) {
    let parent = stream.shards().await[1].clone();
    let split_at = parent.hash_keys.first() + (1 << 100);
    stream.put(split_at, "before").await;

    stream.split(&parent.id, split_at).await;
    stream.put(split_at, "after").await;

    let (records, end) = stream.read(&parent.id, ReadFrom::TrimHorizon, Until::End).await;
    assert_eq!(data(&records), [b"before"]);
    let mut children = stream.shards().await;
    children.retain(|shard| shard.parents == std::slice::from_ref(&parent.id));
    children.sort_by_key(|child| child.hash_keys);
    let [low, high] = &children[..] else { panic!("{children:?}") };
    assert_eq!(low.hash_keys.first(), parent.hash_keys.first());
    assert_eq!((low.hash_keys.last(), high.hash_keys.first()), (split_at - 1, split_at));
    assert_eq!(high.hash_keys.last(), parent.hash_keys.last());
    let parent = stream.shard(&parent.id).await;
    assert!(parent.ends.unwrap() <= low.begins && low.is_open() && high.is_open());
    let reported = end.unwrap().children;
    let expected = if stream.reports_children() { ids(&children) } else { Vec::new() };
    assert_eq!(ids(&reported), expected);
    for child in &reported {
        assert_eq!(child.parents, std::slice::from_ref(&parent.id));
        assert_eq!(child.hash_keys, stream.shard(&child.id).await.hash_keys);
    }
    let (records, _) = stream.read(&high.id, ReadFrom::TrimHorizon, Until::Records(1)).await;
    assert_eq!(data(&records), [b"after"]);
}

pub(crate) async fn merged_shard_has_both_parents(stream: &TestStream) {
    let shards = stream.shards().await;
    let [low, high, _] = &shards[..] else { panic!("{shards:?}") };
    stream.put(low.hash_keys.first(), "low").await;
    stream.put(high.hash_keys.first(), "high").await;

    stream.merge(&low.id, &high.id).await;

    let mut listed = stream.shards().await;
    listed.retain(|shard| !shard.parents.is_empty());
    let [child] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!(child.hash_keys.first(), low.hash_keys.first());
    assert_eq!(child.hash_keys.last(), high.hash_keys.last());
    for (parent, text) in [(low, "low"), (high, "high")] {
        assert!(child.parents.contains(&parent.id));
        let (records, end) = stream.read(&parent.id, ReadFrom::TrimHorizon, Until::End).await;
        assert_eq!(data(&records), [text.as_bytes()]);
        let reported = end.unwrap().children;
        assert_eq!(reported.len(), usize::from(stream.reports_children()));
        for reported in reported {
            assert_eq!(reported.id, child.id);
            assert!(reported.parents.contains(&low.id) && reported.parents.contains(&high.id));
        }
    }
}

pub(crate) async fn old_iterator_is_expired(stream: &TestStream) {
    let Some(lifetime) = stream.iterator_lifetime() else { return };
    let shard = stream.shards().await[0].clone();
    let iterator = stream.iterator(&shard.id, ReadFrom::TrimHorizon).await;

    sleep(lifetime).await;

    let error = stream.source.fetch(&iterator, 10).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::ExpiredIterator, "{error:?}");
}

pub(crate) async fn invalid_iterator_is_an_error(stream: &TestStream) {
    let error = stream.source.fetch(&ShardIterator::new("none"), 10).await.unwrap_err();

    if stream.detects_invalid_iterators() {
        assert_eq!(error.kind(), SourceErrorKind::ExpiredIterator, "{error:?}");
    } else {
        assert_eq!(error.kind(), SourceErrorKind::Unavailable, "{error:?}");
    }
}

pub(crate) async fn unknown_shard_is_no_such_shard(stream: &TestStream) {
    let unknown = "shardId-000000000099".parse().unwrap();

    let error = stream.source.iterator(&unknown, &ReadFrom::TrimHorizon).await.unwrap_err();

    assert_eq!(error.kind(), SourceErrorKind::NoSuchShard, "{error:?}");
}

pub(crate) async fn records_are_pushed_until_shard_ends(stream: &TestStream) {
    if !stream.pushes() {
        return;
    }
    let shard = stream.shards().await[1].clone();
    let split_at = shard.hash_keys.first() + (1 << 100);
    stream.put(split_at, "1").await;

    let mut pushed = stream.source.subscribe(&shard.id, &ReadFrom::TrimHorizon).await.unwrap();
    let mut records = Vec::new();
    while records.is_empty() {
        records.extend(pushed.next().await.unwrap().unwrap().records);
    }
    stream.put(split_at, "2").await;
    stream.split(&shard.id, split_at).await;
    let end = loop {
        let fetched: Fetched = pushed.next().await.unwrap().unwrap();
        records.extend(fetched.records);
        if fetched.next.is_none() {
            break fetched.children;
        }
    };

    assert_eq!(data(&records), [b"1", b"2"]);
    assert_eq!(end.len(), 2);
    assert!(pushed.next().await.is_none());
}
