//! What is true of every stream.

use futures_util::StreamExt;
use lease_kinesis::{Fetched, RawRecord, ReadFrom, Shard, ShardId, ShardIterator, SourceErrorKind};
use tokio::time::sleep;

use crate::world::{Until, World};

fn data(records: &[RawRecord]) -> Vec<&[u8]> {
    records.iter().map(|record| &record.data[..]).collect()
}

fn ids(shards: &[Shard]) -> Vec<ShardId> {
    let mut ids: Vec<_> = shards.iter().map(|shard| shard.id.clone()).collect();
    ids.sort();
    ids
}

pub(crate) async fn all_shards_are_listed(world: &World) {
    let mut shards = world.shards().await;

    shards.sort_by_key(|shard| shard.hash_keys);
    assert_eq!(shards.len(), 3);
    assert_eq!(shards[0].hash_keys.first(), 0);
    assert_eq!(shards[2].hash_keys.last(), u128::MAX);
    for pair in shards.windows(2) {
        assert_eq!(pair[0].hash_keys.last() + 1, pair[1].hash_keys.first());
    }
    assert!(shards.iter().all(|shard| shard.is_open() && shard.parents.is_empty()));
}

pub(crate) async fn reading_begins_where_it_is_told_to(world: &World) {
    let shard = world.shards().await[0].clone();
    let hash_key = shard.hash_keys.first();
    let first = world.put(hash_key, "1").await;
    world.let_time_go_on().await;
    let second = world.put(hash_key, "2").await;
    assert!(first < second);

    let (all, _) = world.read(&shard.id, ReadFrom::TrimHorizon, Until::Records(2)).await;
    assert_eq!(data(&all), [b"1", b"2"]);
    assert_eq!(all[1].sequence, second);
    assert_eq!(&*all[1].partition_key, "key");
    let (at_second, _) = world.read(&shard.id, ReadFrom::At(second), Until::Records(1)).await;
    assert_eq!(at_second, all[1..]);
    let arrived = ReadFrom::Timestamp(all[1].arrived.unwrap());
    let (since_second, _) = world.read(&shard.id, arrived, Until::Records(1)).await;
    assert_eq!(since_second, all[1..]);

    world.rest().await;
    let latest = world.iterator(&shard.id, ReadFrom::Latest).await;
    world.put(hash_key, "3").await;
    let mut fetched = world.source.fetch(&latest, 10).await.unwrap();
    while fetched.records.is_empty() {
        world.rest().await;
        fetched = world.source.fetch(&fetched.next.unwrap(), 10).await.unwrap();
    }
    assert_eq!(data(&fetched.records), [b"3"]);
}

pub(crate) async fn a_fetch_brings_no_more_than_asked_for(world: &World) {
    let shard = world.shards().await[0].clone();
    for text in ["1", "2", "3"] {
        world.put(shard.hash_keys.first(), text).await;
    }
    let iterator = world.iterator(&shard.id, ReadFrom::TrimHorizon).await;

    let two = world.source.fetch(&iterator, 2).await.unwrap();
    let rest = world.source.fetch(&two.next.unwrap(), 2).await.unwrap();

    assert_eq!(data(&two.records), [b"1", b"2"]);
    assert_eq!(data(&rest.records), [b"3"]);
}

pub(crate) async fn a_split_shard_ends_and_its_children_are_found(world: &World) {
    let parent = world.shards().await[1].clone();
    let half = parent.hash_keys.first() + (1 << 100);
    world.put(half, "before").await;

    world.split(&parent.id, half).await;
    world.put(half, "after").await;

    let (records, end) = world.read(&parent.id, ReadFrom::TrimHorizon, Until::End).await;
    assert_eq!(data(&records), [b"before"]);
    let mut children = world.shards().await;
    children.retain(|shard| shard.parents == std::slice::from_ref(&parent.id));
    children.sort_by_key(|child| child.hash_keys);
    let [low, high] = &children[..] else { panic!("{children:?}") };
    assert_eq!(low.hash_keys.first(), parent.hash_keys.first());
    assert_eq!((low.hash_keys.last(), high.hash_keys.first()), (half - 1, half));
    assert_eq!(high.hash_keys.last(), parent.hash_keys.last());
    let parent = world.shard(&parent.id).await;
    assert!(parent.ends.unwrap() <= low.begins && low.is_open() && high.is_open());
    let told = end.unwrap().children;
    let expected = if world.tells_children() { ids(&children) } else { Vec::new() };
    assert_eq!(ids(&told), expected);
    for child in &told {
        assert_eq!(child.parents, std::slice::from_ref(&parent.id));
        assert_eq!(child.hash_keys, world.shard(&child.id).await.hash_keys);
    }
    let (records, _) = world.read(&high.id, ReadFrom::TrimHorizon, Until::Records(1)).await;
    assert_eq!(data(&records), [b"after"]);
}

pub(crate) async fn a_merged_shard_has_both_parents(world: &World) {
    let shards = world.shards().await;
    let [low, high, _] = &shards[..] else { panic!("{shards:?}") };
    world.put(low.hash_keys.first(), "low").await;
    world.put(high.hash_keys.first(), "high").await;

    world.merge(&low.id, &high.id).await;

    let mut listed = world.shards().await;
    listed.retain(|shard| !shard.parents.is_empty());
    let [child] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!(child.hash_keys.first(), low.hash_keys.first());
    assert_eq!(child.hash_keys.last(), high.hash_keys.last());
    for (parent, text) in [(low, "low"), (high, "high")] {
        assert!(child.parents.contains(&parent.id));
        let (records, end) = world.read(&parent.id, ReadFrom::TrimHorizon, Until::End).await;
        assert_eq!(data(&records), [text.as_bytes()]);
        let told = end.unwrap().children;
        assert_eq!(told.len(), usize::from(world.tells_children()));
        for told in told {
            assert_eq!(told.id, child.id);
            assert!(told.parents.contains(&low.id) && told.parents.contains(&high.id));
        }
    }
}

pub(crate) async fn an_old_iterator_is_expired(world: &World) {
    let Some(life) = world.life_of_iterators() else { return };
    let shard = world.shards().await[0].clone();
    let iterator = world.iterator(&shard.id, ReadFrom::TrimHorizon).await;

    sleep(life).await;

    let error = world.source.fetch(&iterator, 10).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::ExpiredIterator, "{error:?}");
}

pub(crate) async fn what_is_no_iterator_is_told(world: &World) {
    let error = world.source.fetch(&ShardIterator::new("none"), 10).await.unwrap_err();

    if world.knows_its_iterators() {
        assert_eq!(error.kind(), SourceErrorKind::ExpiredIterator, "{error:?}");
    } else {
        assert_eq!(error.kind(), SourceErrorKind::Unavailable, "{error:?}");
    }
}

pub(crate) async fn an_unknown_shard_is_no_such_shard(world: &World) {
    let unknown = "shardId-000000000099".parse().unwrap();

    let error = world.source.iterator(&unknown, &ReadFrom::TrimHorizon).await.unwrap_err();

    assert_eq!(error.kind(), SourceErrorKind::NoSuchShard, "{error:?}");
}

pub(crate) async fn records_are_pushed_until_the_shard_ends(world: &World) {
    if !world.pushes() {
        return;
    }
    let shard = world.shards().await[1].clone();
    let half = shard.hash_keys.first() + (1 << 100);
    world.put(half, "1").await;

    let mut pushed = world.source.subscribe(&shard.id, &ReadFrom::TrimHorizon).await.unwrap();
    let mut records = Vec::new();
    while records.is_empty() {
        records.extend(pushed.next().await.unwrap().unwrap().records);
    }
    world.put(half, "2").await;
    world.split(&shard.id, half).await;
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
