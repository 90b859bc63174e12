//! First starts with what arrives from now on, which do not get far, or are several at once.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::conformance::{Call, Fault};
use lease_core::{Attributes, LeaseTable};
use lease_kinesis::{InitialPosition, WorkerBuilder};

use crate::log::Noting;
use crate::world::{TTL, World};

fn start_at_latest(world: &mut World, name: &str) {
    let log = world.log.of(name);
    let set_up = |worker: WorkerBuilder| worker.with_initial_position(InitialPosition::Latest);
    world.start_with(name, move |shard: &_| Noting::new(log.clone(), shard), set_up);
}

/// Who begins makes so many writes, and dies.
fn begun_half_way(seed: u64, writes: usize) -> World {
    let mut world = World::new(seed, 6);
    start_at_latest(&mut world, "a");
    let mut made = 0;
    world.workers["a"].way.choose(move |call| {
        made += usize::from(call == Call::Write);
        (made > writes).then_some(Fault::Hang)
    });
    world.run_for(Duration::from_secs(2));
    world.kill("a");
    world
}

/// Of its writes, one is its own row's, one says when it began, and six make rows.
#[test]
fn what_arrives_after_a_first_start_that_died_half_way_is_read() {
    for writes in 2..=8 {
        let mut world = begun_half_way(1, writes);
        world.put(100);
        world.run_for(TTL);

        start_at_latest(&mut world, "b");

        world.until_all_is_read();
    }
}

#[test]
fn what_arrives_in_a_shard_that_is_closed_before_a_first_start_is_gone_on_with_is_read() {
    for writes in 2..=8 {
        let mut world = begun_half_way(2, writes);
        world.put(100);
        for place in [0, 4] {
            let shard = world.open_shards()[place].clone();
            let half = (shard.hash_keys.last() - shard.hash_keys.first()) / 2;
            let middle = shard.hash_keys.first() + half;
            world.simulation.on_network(|| world.stream.split(&shard.id, middle)).unwrap();
        }
        world.put(100);
        world.run_for(TTL);

        start_at_latest(&mut world, "b");

        world.until_all_is_read();
    }
}

#[test]
fn workers_that_begin_together_begin_at_one_moment() {
    let mut world = World::new(3, 40);
    for name in ["a", "b", "c"] {
        start_at_latest(&mut world, name);
        world.run_for(Duration::from_millis(2));
    }

    world.until("all have rows", TTL, |world| world.rows() == 40);

    let moments = world.simulation.on_network(|| {
        let rows = world.store.list("shop/shards/");
        let moment = async |row: Result<lease_core::LeaseRecord, _>| {
            row.unwrap().attributes["checkpointTimestamp"].as_i64().unwrap()
        };
        rows.then(moment).collect::<Vec<_>>().now_or_never().unwrap()
    });
    assert!(moments.iter().all(|moment| *moment == moments[0]), "{moments:?}");
    world.put(200);
    world.until_all_is_read();
}

#[test]
fn who_begins_reads_one_shard_at_once_and_the_rest_when_it_has_looked_again() {
    let mut world = World::new(4, 7);
    world.start("a");

    world.until("one is read", Duration::from_millis(200), |world| world.shares()["a"] == 1);
    world.run_for(Duration::from_millis(500));

    assert_eq!(world.shares()["a"], 1);
    world.until_shared(&[("a", 7)]);
}

#[test]
fn what_workers_that_begin_together_read_at_once_stays_where_it_is() {
    for seed in 0..20 {
        let mut world = World::new(seed, 7);
        for name in ["a", "b", "c"] {
            world.start(name);
            world.run_for(Duration::from_millis(seed * 10));
        }

        let all_are_read = |world: &World| world.shares().into_values().sum::<usize>() == 7;
        world.until("all are read", TTL, all_are_read);
        world.run_for(TTL * 2);

        let handles = world.workers.values().map(|worker| &worker.handle);
        let moved: u64 = handles.map(|handle| handle.status().counters.handed_over).sum();
        assert_eq!(moved, 0, "{seed}: {}", world.log);
        assert!(world.shares().into_values().all(|share| share >= 2), "{:?}", world.shares());
    }
}

/// Rows of the Kinesis Client Library say `LATEST` until the first checkpoint: asked for again, that
/// is another place.
#[test]
fn what_arrives_between_two_that_begin_at_a_row_of_latest_is_read() {
    let mut world = World::new(5, 2);
    world.simulation.on_network(|| {
        for shard in world.open_shards() {
            let key = format!("shop/shards/{}", shard.id).parse().unwrap();
            let row = Attributes::from([("checkpoint".to_owned(), "LATEST".into())]);
            assert!(world.store.create(&key, &row).now_or_never().unwrap().unwrap());
        }
    });
    world.start("a");
    world.until_shared(&[("a", 2)]);
    world.run_for(Duration::from_secs(1)); // both have begun
    world.kill("a");
    world.put(100);
    world.run_for(TTL);

    world.start("b");

    world.until_all_is_read();
}
