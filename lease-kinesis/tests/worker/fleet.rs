//! Workers that join, stop, die and are paused.

use std::time::Duration;

use crate::log::{Event, Noting, What};
use crate::world::{TTL, World};

/// S4-19, S1-7 to S1-9: all shards are found, and shared.
#[test]
fn shards_are_spread_evenly_and_everything_is_read_once_and_in_order() {
    let mut world = World::new(1, 12);
    world.put(500);
    for name in ["a", "b", "c"] {
        world.start(name);
    }

    world.until_shared(&[("a", 4), ("b", 4), ("c", 4)]);
    world.put(500);
    world.until_all_is_read();

    assert_eq!(world.log.replayed(), 0);
    assert_eq!(world.log.overlaps(), [""; 0]);
}

/// S4-24: a late join.
#[test]
fn who_joins_gets_its_share_and_no_record_is_worked_on_twice() {
    let mut world = World::new(2, 12);
    world.start("a");
    world.until_shared(&[("a", 12)]);
    world.put(300);
    world.start("b");

    world.put(300);
    world.until_shared(&[("a", 6), ("b", 6)]);
    world.put(300);
    world.until_all_is_read();

    assert_eq!(world.log.replayed(), 0);
    assert_eq!(world.log.overlaps(), [""; 0]);
}

#[test]
fn who_stops_hands_over_and_no_record_is_worked_on_twice() {
    let mut world = World::new(3, 12);
    world.start("a");
    world.start("b");
    world.until_shared(&[("a", 6), ("b", 6)]);
    world.put(600);

    assert_eq!(world.stop("b"), Ok(()));
    world.put(300);
    world.until_shared(&[("a", 12)]);
    world.until_all_is_read();

    assert_eq!(world.log.replayed(), 0);
    assert_eq!(world.log.count(|event| event.what == What::LeaseLost), 0);
}

/// S4-20: nothing before the end of its leases, all after.
#[test]
fn who_dies_is_succeeded_after_its_ttl() {
    let mut world = World::new(4, 12);
    world.start("a");
    world.start("b");
    world.until_shared(&[("a", 6), ("b", 6)]);
    let died = world.simulation.now();
    world.kill("b");
    world.put(300);

    world.run_for(TTL * 6 / 10);
    assert_eq!(world.shares()["a"], 6, "taken before the leases ran out");
    world.until_shared(&[("a", 12)]);

    let taken = world.simulation.now().abs_diff(died);
    assert!(taken <= TTL + TTL * 2 / 3 + Duration::from_secs(1), "only after {taken:?}");
    world.until_all_is_read();
}

/// A pause that is longer than its ttl: nothing that it had in hand is checkpointed.
#[test]
fn who_was_paused_for_longer_than_its_ttl_checkpoints_nothing_more() {
    let mut world = World::new(5, 4);
    world.start("a");
    let log = world.log.of("b");
    let slow = move |shard: &_| Noting::slow(log.clone(), shard, TTL / 2);
    world.start_with("b", slow, |worker| worker);
    world.until_shared(&[("a", 2), ("b", 2)]);
    world.put(200);
    let is_given = |event: &Event| &*event.worker == "b" && event.is_record();
    world.until("b has batches in hand", TTL, |world| world.log.count(is_given) > 0);
    world.run_for(Duration::from_secs(2));
    world.pause("b");
    world.run_for(TTL * 3);
    assert_eq!(world.shares()["a"], 4);
    world.put(200);
    world.run_for(TTL);

    let woke = world.simulation.now();
    world.resume("b");
    world.until_shared(&[("a", 2), ("b", 2)]);
    world.until_all_is_read();

    let late = |event: &Event| {
        event.at >= woke && event.what == What::Checkpointed && &*event.worker == "b"
    };
    let lost = world.log.events().into_iter().filter(|event| event.what == What::LeaseLost);
    let lost: Vec<_> = lost.map(|event| event.token).collect();
    assert_eq!(lost.len(), 2, "both processors are told\n{}", world.log);
    assert_eq!(world.log.count(|event| late(event) && lost.contains(&event.token)), 0);
}
