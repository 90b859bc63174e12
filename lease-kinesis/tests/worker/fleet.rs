//! Workers that join, stop, crash and pause.

use std::time::Duration;

use crate::log::{Event, EventKind, LoggingProcessor};
use crate::simulated_fleet::{SimulatedFleet, TTL};

#[test]
fn shards_are_shared_evenly_and_read_once_in_order() {
    let mut fleet = SimulatedFleet::new(1, 12);
    fleet.put(500);
    for name in ["a", "b", "c"] {
        fleet.start(name);
    }

    fleet.until_shared(&[("a", 4), ("b", 4), ("c", 4)]);
    fleet.put(500);
    fleet.until_all_is_read();

    assert_eq!(fleet.log.replayed(), 0);
    assert_eq!(fleet.log.overlaps(), [""; 0]);
}

#[test]
fn joining_worker_gets_its_share_without_replay() {
    let mut fleet = SimulatedFleet::new(2, 12);
    fleet.start("a");
    fleet.until_shared(&[("a", 12)]);
    fleet.put(300);
    fleet.start("b");

    fleet.put(300);
    fleet.until_shared(&[("a", 6), ("b", 6)]);
    fleet.put(300);
    fleet.until_all_is_read();

    assert_eq!(fleet.log.replayed(), 0);
    assert_eq!(fleet.log.overlaps(), [""; 0]);
}

#[test]
fn stopping_worker_hands_over_without_replay() {
    let mut fleet = SimulatedFleet::new(3, 12);
    fleet.start("a");
    fleet.start("b");
    fleet.until_shared(&[("a", 6), ("b", 6)]);
    fleet.put(600);

    assert_eq!(fleet.stop("b"), Ok(()));
    fleet.put(300);
    fleet.until_shared(&[("a", 12)]);
    fleet.until_all_is_read();

    assert_eq!(fleet.log.replayed(), 0);
    assert_eq!(fleet.log.count(|event| event.kind == EventKind::LeaseLost), 0);
}

#[test]
fn crashed_worker_is_replaced_after_ttl() {
    let mut fleet = SimulatedFleet::new(4, 12);
    fleet.start("a");
    fleet.start("b");
    fleet.until_shared(&[("a", 6), ("b", 6)]);
    let died = fleet.simulation.now();
    fleet.kill("b");
    fleet.put(300);

    fleet.run_for(TTL * 6 / 10);
    assert_eq!(fleet.shares()["a"], 6, "obtained before the leases expired");
    fleet.until_shared(&[("a", 12)]);

    let taken = fleet.simulation.now().abs_diff(died);
    assert!(taken <= TTL + TTL * 2 / 3 + Duration::from_secs(1), "obtained only after {taken:?}");
    fleet.until_all_is_read();
}

#[test]
fn worker_paused_beyond_ttl_cannot_checkpoint() {
    let mut fleet = SimulatedFleet::new(5, 4);
    fleet.start("a");
    let log = fleet.log.of("b");
    let slow = move |shard: &_| LoggingProcessor::slow(log.clone(), shard, TTL / 2);
    fleet.start_with("b", slow, |worker| worker);
    fleet.until_shared(&[("a", 2), ("b", 2)]);
    fleet.put(200);
    let is_given = |event: &Event| &*event.worker == "b" && event.is_record();
    fleet.until("b has received batches", TTL, |fleet| fleet.log.count(is_given) > 0);
    fleet.run_for(Duration::from_secs(2));
    fleet.pause("b");
    fleet.run_for(TTL * 3);
    assert_eq!(fleet.shares()["a"], 4);
    fleet.put(200);
    fleet.run_for(TTL);

    let woke = fleet.simulation.now();
    fleet.resume("b");
    fleet.until_shared(&[("a", 2), ("b", 2)]);
    fleet.until_all_is_read();

    let late = |event: &Event| {
        event.at >= woke && event.kind == EventKind::Checkpointed && &*event.worker == "b"
    };
    let lost = fleet.log.events().into_iter().filter(|event| event.kind == EventKind::LeaseLost);
    let lost: Vec<_> = lost.map(|event| event.token).collect();
    assert_eq!(lost.len(), 2, "both processors are notified\n{}", fleet.log);
    assert_eq!(fleet.log.count(|event| late(event) && lost.contains(&event.token)), 0);
}
