//! Streams whose shards are split and merged while they are read.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_kinesis::{Shard, ShardId};

use crate::log::What;
use crate::world::{TTL, World};

fn split(world: &World, place: usize) -> (ShardId, ShardId) {
    let shard = world.open_shards()[place].clone();
    let half = (shard.hash_keys.last() - shard.hash_keys.first()) / 2;
    let middle = shard.hash_keys.first() + half;
    world.simulation.on_network(|| world.stream.split(&shard.id, middle)).unwrap()
}

fn merge_first_two(world: &World) -> ShardId {
    let mut open: Vec<Shard> = world.open_shards();
    open.sort_by_key(|shard| shard.hash_keys.first());
    let (one, other) = (&open[0].id, &open[1].id);
    world.simulation.on_network(|| world.stream.merge(one, other)).unwrap()
}

/// What of a shard was worked on, comes after all of its parents.
fn parents_come_first(world: &World) {
    let mut last: BTreeMap<ShardId, usize> = BTreeMap::new();
    let mut first: BTreeMap<ShardId, usize> = BTreeMap::new();
    for (place, event) in world.log.events().into_iter().enumerate() {
        if event.is_record() {
            first.entry(event.shard.clone()).or_insert(place);
            last.insert(event.shard, place);
        }
    }
    for (child, parents) in world.lineage() {
        for parent in parents {
            let (Some(begun), Some(ended)) = (first.get(&child), last.get(&parent)) else {
                continue;
            };
            assert!(ended < begun, "{child} was begun before the end of {parent}\n{}", world.log);
        }
    }
}

/// S4-11 to S4-13.
#[test]
fn what_a_shard_became_is_read_after_it_and_from_its_beginning() {
    for told in [true, false] {
        let mut world = World::new(1, 4);
        if !told {
            world.stream = world.stream.clone().without_children_told();
        }
        world.start("a");
        world.start("b");
        world.until_shared(&[("a", 2), ("b", 2)]);
        for round in 0..3 {
            world.put(100);
            split(&world, round);
            world.put(100);
            merge_first_two(&world);
            world.put(100);
            world.run_for(Duration::from_secs(3));
        }

        world.until_all_is_read();

        parents_come_first(&world);
        assert_eq!(world.log.replayed(), 0);
        world.until_shared(&[("a", 2), ("b", 2)]);
    }
}

#[test]
fn children_are_found_although_the_list_of_shards_is_late() {
    let mut world = World::new(2, 2);
    let late = world.stream.clone().with_late_listing(Duration::from_secs(7));
    world.stream = late.without_children_told();
    world.start_with(
        "a",
        {
            let log = world.log.of("a");
            move |shard: &_| crate::log::Noting::new(log.clone(), shard)
        },
        |worker| worker.with_sync_interval(Duration::from_secs(5)),
    );
    world.until_shared(&[("a", 2)]);
    world.put(100);
    split(&world, 0);
    world.put(100);

    world.until_all_is_read();

    parents_come_first(&world);
}

/// Without waiting for the usual time of a look at the list.
#[test]
fn children_that_are_listed_late_are_read_seconds_later() {
    let lag = Duration::from_secs(7);
    let mut world = World::new(2, 2);
    world.stream = world.stream.clone().with_late_listing(lag).without_children_told();
    world.start("a");
    world.until_shared(&[("a", 2)]);
    world.put(100);
    let closed = world.simulation.now();
    split(&world, 0);
    world.put(100);

    world.until_all_is_read();

    let taken = world.simulation.now().abs_diff(closed);
    assert!(taken < lag + TTL, "only after {taken:?}");
    parents_come_first(&world);
}

/// A worker dies between the end of a shard and the beginning of its children.
#[test]
fn a_death_at_the_end_of_a_shard_loses_nothing() {
    for after in [0, 100, 200, 300, 400, 600, 900] {
        let mut world = World::new(after, 2);
        world.start("a");
        world.until_shared(&[("a", 2)]);
        world.start("b");
        world.put(100);
        split(&world, 0);
        split(&world, 0);
        world.put(100);
        world.run_for(Duration::from_millis(after));
        world.kill("a");
        world.put(100);

        world.until_all_is_read();

        parents_come_first(&world);
    }
}

#[test]
fn rows_of_shards_that_are_over_go_once_nobody_needs_them() {
    let mut world = World::new(3, 2);
    world.start_with(
        "a",
        {
            let log = world.log.of("a");
            move |shard: &_| crate::log::Noting::new(log.clone(), shard)
        },
        |worker| worker.with_sync_interval(TTL / 2),
    );
    world.put(100);
    split(&world, 0);
    world.put(100);
    world.until_all_is_read();

    world.until("only the open shards have rows", TTL * 10, |world| world.rows() == 3);

    world.put(100);
    world.until_all_is_read();
    assert_eq!(world.log.count(|event| event.what == What::ShardEnded), 1);
}
