//! Tests outages of the table and of the stream.

use std::time::Duration;

use lease_core::conformance::{Call, Fault};
use lease_kinesis::Faults;

use crate::log::{Event, EventKind};
use crate::simulated_fleet::{SimulatedFleet, TTL};

#[test]
fn worker_without_table_stops_and_is_replaced() {
    let mut fleet = SimulatedFleet::new(1, 4);
    fleet.start("a");
    fleet.start("b");
    fleet.until_shared(&[("a", 2), ("b", 2)]);
    fleet.run_for(Duration::from_secs(1));
    fleet.workers["b"].connection.choose(|_| Some(Fault::Hang));
    fleet.put(100);

    fleet.until("a reads all", TTL * 3, |fleet| fleet.shares()["a"] == 4);

    assert_eq!(fleet.log.overlaps(), [""; 0]);
    assert_eq!(fleet.log.count(|event| event.kind == EventKind::LeaseLost), 2);
    fleet.until_all_is_read();
    fleet.workers["b"].connection.heal();
    fleet.until_shared(&[("a", 2), ("b", 2)]);
}

#[test]
fn occasional_table_faults_repeat_no_record() {
    let mut fleet = SimulatedFleet::new(2, 6);
    for name in ["a", "b", "c"] {
        fleet.start(name);
        let mut calls = 0_u32;
        fleet.workers[name].connection.choose(move |_| {
            calls += 1;
            match calls % 9 {
                3 => Some(Fault::Fail),
                6 => Some(Fault::LoseReply),
                _ => None,
            }
        });
    }
    for _ in 0..10 {
        fleet.put(50);
        fleet.run_for(Duration::from_secs(2));
    }

    fleet.until_all_is_read();

    fleet.until_shared(&[("a", 2), ("b", 2), ("c", 2)]);
    assert_eq!(fleet.log.overlaps(), [""; 0]);
    assert_eq!(fleet.log.replayed(), 0);
}

#[test]
fn shard_is_handed_over_only_after_its_checkpoint() {
    let mut fleet = SimulatedFleet::new(3, 4);
    fleet.start("a");
    fleet.until_shared(&[("a", 4)]);
    fleet.put(100);
    fleet.until_all_is_read();
    fleet.workers["a"].connection.every(Call::Write, Fault::Fail);
    fleet.put(100);
    fleet.until("all is processed", TTL, |fleet| fleet.log.distinct() >= 200);
    fleet.start("b");
    fleet.run_for(TTL * 2);
    assert_eq!(fleet.shares()["b"], 0, "handed over before its checkpoint");

    fleet.workers["a"].connection.heal();

    fleet.until_shared(&[("a", 2), ("b", 2)]);
    fleet.run_for(TTL);
    let by_b = fleet.log.count(|event| &*event.worker == "b" && event.is_record());
    assert_eq!(by_b, 0, "b received records that a had processed");
}

#[test]
fn stopping_worker_waits_for_its_last_checkpoint() {
    let mut fleet = SimulatedFleet::new(6, 4);
    fleet.start("a");
    fleet.until_shared(&[("a", 4)]);
    fleet.workers["a"].connection.every(Call::Write, Fault::Fail);
    fleet.put(100);
    fleet.until("all is processed", TTL, |fleet| fleet.log.distinct() >= 100);
    fleet.workers["a"].handle.stop();
    fleet.run_for(TTL);
    assert_eq!(fleet.shares()["a"], 4, "handed over before its checkpoint");

    fleet.workers["a"].connection.heal();
    assert_eq!(fleet.until_ended("a"), Ok(()));
    let processed = fleet.log.count(Event::is_record);

    fleet.start("b");
    fleet.until_shared(&[("b", 4)]);
    fleet.run_for(TTL);
    assert_eq!(fleet.log.count(Event::is_record), processed, "records were processed again");
}

#[test]
fn stream_faults_lose_and_repeat_no_record() {
    let mut fleet = SimulatedFleet::new(4, 4);
    // `empty` returns no records although the shard has records.
    let faults = Faults { throttled: 0.2, unavailable: 0.2, empty: 0.3, ..Faults::default() };
    fleet.stream = fleet.stream.with_faults(7, faults);
    fleet.start("a");
    fleet.start("b");
    for _ in 0..10 {
        fleet.put(50);
        fleet.run_for(Duration::from_secs(2));
    }

    fleet.until_all_is_read();

    assert_eq!(fleet.log.replayed(), 0);
    assert_eq!(fleet.log.count(|event| event.kind == EventKind::LeaseLost), 0);
}

#[test]
fn worker_waits_for_stream_that_cannot_be_listed() {
    let mut fleet = SimulatedFleet::new(5, 2);
    let never = Faults { unavailable: 1.0, ..Faults::default() };
    fleet.stream = fleet.stream.with_faults(1, never);
    fleet.start("a");
    fleet.run_for(TTL * 2);
    assert_eq!(fleet.shares()["a"], 0);

    fleet.stream.set_faults(Faults::default());
    fleet.put(50);

    fleet.until_all_is_read();
}

/// A list that fails half way lacks some workers and some shards.
#[test]
fn incomplete_list_of_rows_changes_nothing() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang] {
        let mut fleet = SimulatedFleet::new(7, 6);
        fleet.start("a");
        fleet.start("b");
        fleet.until_shared(&[("a", 3), ("b", 3)]);
        fleet.workers["a"].connection.every(Call::Read, fault);
        fleet.put(100);
        fleet.run_for(TTL * 5);

        assert_eq!(fleet.shares()["a"], 3, "{fault:?}");
        fleet.until_all_is_read();
        assert_eq!(
            fleet.log.count(|event| event.kind == EventKind::ShutdownRequested),
            0,
            "{fault:?}"
        );
        assert_eq!(fleet.log.count(|event| event.kind == EventKind::LeaseLost), 0, "{fault:?}");
        fleet.workers["a"].connection.heal();
        fleet.start("c");
        fleet.until_shared(&[("a", 2), ("b", 2), ("c", 2)]);
        assert_eq!(fleet.log.overlaps(), [""; 0]);
    }
}

#[test]
fn worker_that_cannot_list_rows_still_hands_over() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang] {
        let mut fleet = SimulatedFleet::new(8, 4);
        fleet.start("a");
        fleet.start("b");
        fleet.until_shared(&[("a", 2), ("b", 2)]);
        fleet.put(100);
        fleet.until_all_is_read();
        fleet.workers["a"].connection.every(Call::Read, fault);
        fleet.run_for(TTL / 2);
        let begun = fleet.simulation.now();

        assert_eq!(fleet.stop("a"), Ok(()));

        let took = fleet.simulation.now().abs_diff(begun);
        assert!(took <= TTL * 3 / 2, "{fault:?}: the worker ended only after {took:?}");
        fleet.until_shared(&[("b", 4)]);
        fleet.put(100);
        fleet.until_all_is_read();
        assert_eq!(fleet.log.count(|event| event.kind == EventKind::LeaseLost), 0, "{fault:?}");
    }
}
