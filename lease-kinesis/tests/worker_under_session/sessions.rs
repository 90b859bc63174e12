//! What only workers under sessions do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lease_core::conformance::{Call, Fault};
use lease_core::store::LeaseTable;
use lease_core::{Attributes, Locker, Value};

use crate::log::EventKind;
use crate::simulated_fleet::{SimulatedFleet, TTL};

fn attributes(fleet: &SimulatedFleet, key: &str) -> Attributes {
    let key = key.parse().unwrap();
    let read = fleet.simulation.on_network(|| fleet.store.read(&key).now_or_never());
    read.unwrap().unwrap().unwrap().attributes
}

fn delete(fleet: &mut SimulatedFleet, key: &str) {
    let (store, key) = (Arc::clone(&fleet.store), key.parse().unwrap());
    fleet.simulation.network().spawn(async move {
        let lease =
            Locker::new(Arc::clone(&store)).obtain(&key).await.unwrap().into_lease().unwrap();
        lease.delete(store).await.unwrap();
    });
    fleet.run_for(Duration::from_millis(10));
}

fn start(fleet: &mut SimulatedFleet, names: &[&str]) {
    for name in names {
        fleet.start(name);
    }
}

/// The survivor walks along the ring. With one session per tick, this would take 11 ticks.
#[test]
fn shards_of_many_crashed_workers_are_read_again_soon() {
    let mut fleet = SimulatedFleet::new(21, 12);
    let names: Vec<_> = (0..12).map(|number| format!("w{number:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    start(&mut fleet, &names);
    let one_each: Vec<_> = names.iter().map(|name| (*name, 1)).collect();
    fleet.until_shared(&one_each);
    fleet.run_for(TTL);

    for name in &names[1..] {
        fleet.kill(name);
    }
    let crashed = fleet.simulation.now();
    fleet.until("the survivor reads all", TTL * 4, |fleet| fleet.shares()["w00"] == 12);

    let took = fleet.simulation.now().abs_diff(crashed);
    assert!(took <= TTL + TTL * 2 / 3, "{took:?}");
}

#[test]
fn removed_counters_return_and_no_shard_moves() {
    let mut fleet = SimulatedFleet::new(22, 9);
    start(&mut fleet, &["a", "b", "c"]);
    fleet.until_shared(&[("a", 3), ("b", 3), ("c", 3)]);
    fleet.run_for(TTL);

    delete(&mut fleet, "shop/changes");
    fleet.run_for(TTL * 2);
    fleet.kill("b");
    fleet.until("two workers read all", TTL * 3, |fleet| {
        fleet.shares().values().sum::<usize>() == 9 && fleet.shares().len() == 2
    });

    let ended = |kind| fleet.log.count(|event| event.kind == kind);
    assert_eq!((ended(EventKind::ShutdownRequested), ended(EventKind::LeaseLost)), (0, 0));
}

/// The counters of crashed workers are removed, also if a worker starts again under its name.
#[test]
fn counters_of_crashed_workers_are_removed() {
    let mut fleet = SimulatedFleet::new(23, 6);
    start(&mut fleet, &["a", "b", "c"]);
    fleet.until_shared(&[("a", 2), ("b", 2), ("c", 2)]);

    fleet.kill("b");
    fleet.kill("c");
    fleet.start("c");
    fleet.until_shared(&[("a", 3), ("c", 3)]);
    fleet.run_for(TTL * 2);

    let counters = attributes(&fleet, "shop/changes");
    assert_eq!(counters.len(), 2, "{counters:?}");
}

/// Heartbeats write the whole row of the worker.
#[test]
fn old_notices_leave_the_row_of_the_worker() {
    let mut fleet = SimulatedFleet::new(24, 6);
    fleet.start("a");
    fleet.until_shared(&[("a", 6)]);
    fleet.run_for(Duration::from_secs(1));
    assert_ne!(attributes(&fleet, "shop/workers/a")["notices"], Value::List(Vec::new()));

    fleet.run_for(TTL * 5);

    assert_eq!(attributes(&fleet, "shop/workers/a")["notices"], Value::List(Vec::new()));
}

/// While reads fail, heartbeats continue, and no shard is lost.
#[test]
fn worker_that_cannot_read_keeps_its_shards() {
    let mut fleet = SimulatedFleet::new(26, 6);
    start(&mut fleet, &["a", "b"]);
    fleet.until_shared(&[("a", 3), ("b", 3)]);

    fleet.workers["a"].connection.every(Call::Read, Fault::Fail);
    fleet.run_for(TTL * 6);
    assert_eq!(fleet.shares()["a"], 3);
    fleet.workers["a"].connection.heal();
    fleet.start("c");

    fleet.until_shared(&[("a", 2), ("b", 2), ("c", 2)]);
    assert_eq!(fleet.log.count(|event| event.kind == EventKind::LeaseLost), 0);
}

/// The ticks and the heartbeats of the workers have many different phases. The killed workers are neighbours in the ring.
fn longest_time_without_a_reader(killed: &[&str]) -> Duration {
    let names = ["a", "b", "c", "d", "e"];
    let time = |phase: u64| {
        let mut fleet = SimulatedFleet::new(100 + phase, 10);
        for (number, name) in (1..).zip(names) {
            fleet.start(name);
            fleet.run_for(Duration::from_millis(phase * 677 * number % 3_400));
        }
        fleet.until_shared(&names.map(|name| (name, 2)));
        fleet.run_for(TTL + Duration::from_millis(phase * 97));
        let mut died = fleet.simulation.now();
        for name in killed {
            died = fleet.simulation.now();
            fleet.kill(name);
            fleet.run_for(Duration::from_millis(phase * 53 % 3_400));
        }
        fleet.until("the others read all", TTL * 4, |fleet| {
            fleet.shares().values().sum::<usize>() == 10
        });
        fleet.simulation.now().abs_diff(died)
    };
    (0..60).step_by(5).map(time).max().unwrap()
}

#[test]
fn shards_of_a_crashed_worker_are_read_within_a_ttl_and_5_seconds() {
    for killed in [&["c"][..], &["b", "c"], &["e", "a", "b"]] {
        let longest = longest_time_without_a_reader(killed);

        assert!(longest <= TTL + Duration::from_secs(5), "{killed:?}: {longest:?}");
    }
}
