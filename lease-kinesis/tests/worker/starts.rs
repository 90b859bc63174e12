//! Tests first starts at the latest record.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::Attributes;
use lease_core::conformance::{Call, Fault};
use lease_core::store::LeaseTable;
use lease_kinesis::{InitialPosition, WorkerBuilder};

use crate::log::LoggingProcessor;
use crate::mode;
use crate::simulated_fleet::{SimulatedFleet, TTL};

fn start_at_latest(fleet: &mut SimulatedFleet, name: &str) {
    let log = fleet.log.of(name);
    let set_up = |worker: WorkerBuilder| worker.with_initial_position(InitialPosition::Latest);
    fleet.start_with(name, move |shard: &_| LoggingProcessor::new(log.clone(), shard), set_up);
}

/// The worker makes only `writes` writes before a kill.
fn interrupted_start(seed: u64, writes: usize) -> SimulatedFleet {
    let mut fleet = SimulatedFleet::new(seed, 6);
    start_at_latest(&mut fleet, "a");
    let mut made = 0;
    fleet.workers["a"].connection.choose(move |call| {
        made += usize::from(call == Call::Write);
        (made > writes).then_some(Fault::Hang)
    });
    fleet.run_for(Duration::from_secs(2));
    fleet.kill("a");
    fleet
}

/// After its own writes, a worker writes the start time and the rows of six shards.
#[test]
fn records_after_interrupted_start_are_read() {
    for writes in mode::OWN_WRITES + 1..=mode::OWN_WRITES + 7 {
        let mut fleet = interrupted_start(1, writes);
        fleet.put(100);
        fleet.run_for(TTL);

        start_at_latest(&mut fleet, "b");

        fleet.until_all_is_read();
    }
}

#[test]
fn records_of_shard_closed_after_interrupted_start_are_read() {
    for writes in mode::OWN_WRITES + 1..=mode::OWN_WRITES + 7 {
        let mut fleet = interrupted_start(2, writes);
        fleet.put(100);
        for index in [0, 4] {
            fleet.split(&fleet.open_shards()[index]);
        }
        fleet.put(100);
        fleet.run_for(TTL);

        start_at_latest(&mut fleet, "b");

        fleet.until_all_is_read();
    }
}

#[test]
fn workers_that_start_together_share_one_start_time() {
    let mut fleet = SimulatedFleet::new(3, 40);
    for name in ["a", "b", "c"] {
        start_at_latest(&mut fleet, name);
        fleet.run_for(Duration::from_millis(2));
    }

    fleet.until("all have rows", TTL, |fleet| fleet.rows() == 40);

    let moments = fleet.simulation.on_network(|| {
        let rows = fleet.store.list("shop/shards/");
        let moment = async |row: Result<lease_core::store::LeaseRecord, _>| {
            row.unwrap().attributes["checkpointTimestamp"].as_i64().unwrap()
        };
        rows.then(moment).collect::<Vec<_>>().now_or_never().unwrap()
    });
    assert!(moments.iter().all(|moment| *moment == moments[0]), "{moments:?}");
    fleet.put(200);
    fleet.until_all_is_read();
}

#[test]
fn new_worker_reads_one_shard_first() {
    let mut fleet = SimulatedFleet::new(4, 7);
    fleet.start("a");

    fleet.until("one shard is read", Duration::from_millis(200), |fleet| fleet.shares()["a"] == 1);
    fleet.run_for(Duration::from_millis(500));

    assert_eq!(fleet.shares()["a"], 1);
    fleet.until_shared(&[("a", 7)]);
}

#[test]
fn first_shards_of_workers_that_start_together_stay() {
    for seed in 0..20 {
        let mut fleet = SimulatedFleet::new(seed, 7);
        for name in ["a", "b", "c"] {
            fleet.start(name);
            fleet.run_for(Duration::from_millis(seed * 10));
        }

        let all_are_read =
            |fleet: &SimulatedFleet| fleet.shares().into_values().sum::<usize>() == 7;
        fleet.until("workers read all shards", TTL, all_are_read);
        fleet.run_for(TTL * 2);

        let handles = fleet.workers.values().map(|worker| &worker.handle);
        let moved: u64 = handles.map(|handle| handle.status().counters.handed_over).sum();
        assert_eq!(moved, 0, "{seed}: {}", fleet.log);
        assert!(fleet.shares().into_values().all(|share| share >= 2), "{:?}", fleet.shares());
    }
}

/// Rows of the Kinesis Client Library have `LATEST` until the first checkpoint.
#[test]
fn records_between_two_starts_at_latest_are_read() {
    let mut fleet = SimulatedFleet::new(5, 2);
    fleet.simulation.on_network(|| {
        for shard in fleet.open_shards() {
            let key = format!("shop/shards/{}", shard.id).parse().unwrap();
            let row = Attributes::from([("checkpoint".to_owned(), "LATEST".into())]);
            assert!(fleet.store.create(&key, &row).now_or_never().unwrap().unwrap());
        }
    });
    fleet.start("a");
    fleet.until_shared(&[("a", 2)]);
    fleet.run_for(Duration::from_secs(1)); // both shards are being read
    fleet.kill("a");
    fleet.put(100);
    fleet.run_for(TTL);

    fleet.start("b");

    fleet.until_all_is_read();
}
