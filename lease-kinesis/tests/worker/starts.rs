//! First starts with what arrives from now on, which do not get far, or are several at once.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::LeaseTable;
use lease_core::conformance::{Call, Fault};
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
