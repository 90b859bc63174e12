//! Workers of both modes on one table, as while an application changes its mode.

use std::time::Duration;

use crate::log::{EventKind, LoggingProcessor};
use crate::simulated_fleet::{SimulatedFleet, TTL};

fn start_without_session(fleet: &mut SimulatedFleet, name: &str) {
    let log = fleet.log.of(name);
    let factory = move |shard: &_| LoggingProcessor::new(log.clone(), shard);
    fleet.start_in_mode(name, factory, |worker| worker);
}

fn rows_per_tick(fleet: &mut SimulatedFleet, name: &str) -> u64 {
    let counts = |fleet: &SimulatedFleet| {
        let counters = fleet.workers[name].handle.status().counters;
        (counters.rows_read, counters.ticks)
    };
    let before = counts(fleet);
    fleet.run_for(Duration::from_mins(2));
    let after = counts(fleet);
    (after.0 - before.0) / (after.1 - before.1)
}

fn is_read_once_without_loss(fleet: &mut SimulatedFleet) {
    fleet.put(200);
    fleet.until_all_is_read();
    assert_eq!(fleet.log.overlaps(), [""; 0]);
    assert_eq!(fleet.log.count(|event| event.kind == EventKind::LeaseLost), 0);
}

#[test]
fn mode_changes_while_workers_are_replaced_one_by_one() {
    let mut fleet = SimulatedFleet::new(31, 12);
    for name in ["a", "b", "c"] {
        start_without_session(&mut fleet, name);
    }
    fleet.until_shared(&[("a", 4), ("b", 4), ("c", 4)]);
    fleet.put(200);

    fleet.start("d");
    fleet.until_shared(&[("a", 3), ("b", 3), ("c", 3), ("d", 3)]);
    for (old, new) in [("a", "e"), ("b", "f")] {
        assert_eq!(fleet.stop(old), Ok(()));
        fleet.start(new);
    }
    fleet.until_shared(&[("c", 3), ("d", 3), ("e", 3), ("f", 3)]);
    is_read_once_without_loss(&mut fleet);
    assert_eq!(fleet.stop("c"), Ok(()));

    fleet.until_shared(&[("d", 4), ("e", 4), ("f", 4)]);
    is_read_once_without_loss(&mut fleet);
    let rows = rows_per_tick(&mut fleet, "e");
    assert!(rows <= 5, "{rows} rows per tick, after all workers have sessions");
}

/// Beside a few workers of the mode before, the others read only the rows of these workers and their shards. An audit
/// finds a new worker of the mode before, even if such a worker is the first by name.
#[test]
fn worker_under_a_session_shares_with_workers_of_the_mode_before() {
    let mut fleet = SimulatedFleet::new(32, 24);
    fleet.start("c");
    fleet.start("d");
    fleet.until_shared(&[("c", 12), ("d", 12)]);
    for name in ["a", "b"] {
        start_without_session(&mut fleet, name);
        fleet.until("all read equal shares", Duration::from_secs(90), |fleet| {
            fleet.shares().values().all(|share| *share * fleet.workers.len() == 24)
        });
    }

    let rows = rows_per_tick(&mut fleet, "d");

    // Three rows, the rows of two workers, their 12 shards, and the audits.
    assert!(rows <= 22, "{rows} rows per tick");
    is_read_once_without_loss(&mut fleet);
}

#[test]
fn crashed_worker_of_either_mode_is_replaced_by_the_other() {
    let mut fleet = SimulatedFleet::new(33, 12);
    for name in ["a", "b"] {
        fleet.start(name);
    }
    for name in ["c", "d"] {
        start_without_session(&mut fleet, name);
    }
    let each_3 = [("a", 3), ("b", 3), ("c", 3), ("d", 3)];
    fleet.until_shared(&each_3);

    fleet.kill("c");
    fleet.until_shared(&[("a", 4), ("b", 4), ("d", 4)]);
    fleet.kill("b");
    fleet.until_shared(&[("a", 6), ("d", 6)]);
    fleet.kill("a");
    fleet.until_shared(&[("d", 12)]);

    fleet.start("e");
    fleet.until_shared(&[("d", 6), ("e", 6)]);
    fleet.kill("d");
    fleet.until_shared(&[("e", 12)]);
    fleet.put(200);
    fleet.until_all_is_read();
    assert_eq!(fleet.log.overlaps(), [""; 0]);
}

/// A worker of the mode before reports no new rows. No audit finds the rows within this time.
#[test]
fn children_of_a_shard_that_the_mode_before_has_read_are_found() {
    let mut fleet = SimulatedFleet::new(34, 4);
    start_without_session(&mut fleet, "a");
    let log = fleet.log.of("b");
    let factory = move |shard: &_| LoggingProcessor::new(log.clone(), shard);
    let no_audit = Duration::from_hours(10);
    fleet.start_with("b", factory, |worker| worker.with_sync_interval(no_audit));
    fleet.until_shared(&[("a", 2), ("b", 2)]);
    fleet.run_for(TTL);
    let read_by_a = fleet.workers["a"].handle.status().shards;
    for shard in fleet.open_shards() {
        if read_by_a.iter().any(|read| read.shard == shard.id) {
            fleet.split(&shard);
        }
    }

    fleet.until("both read 3 shards", TTL * 2, |fleet| {
        fleet.shares().values().all(|share| *share == 3)
    });
    is_read_once_without_loss(&mut fleet);
}
