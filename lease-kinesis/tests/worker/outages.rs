//! The table and the stream out of reach.

use std::time::Duration;

use lease_core::conformance::{Call, Fault};
use lease_kinesis::Faults;

use crate::log::{Event, What};
use crate::world::{TTL, World};

#[test]
fn a_worker_without_its_table_stops_in_time_and_is_succeeded() {
    let mut world = World::new(1, 4);
    world.start("a");
    world.start("b");
    world.until_shared(&[("a", 2), ("b", 2)]);
    world.run_for(Duration::from_secs(1));
    world.workers["b"].way.choose(|_| Some(Fault::Hang));
    world.put(100);

    world.until("a reads all", TTL * 3, |world| world.shares()["a"] == 4);

    assert_eq!(world.log.overlaps(), [""; 0]);
    assert_eq!(world.log.count(|event| event.what == What::LeaseLost), 2);
    world.until_all_is_read();
    world.workers["b"].way.heal();
    world.until_shared(&[("a", 2), ("b", 2)]);
}

#[test]
fn a_table_that_fails_now_and_then_costs_nothing() {
    let mut world = World::new(2, 6);
    for name in ["a", "b", "c"] {
        world.start(name);
        let mut calls = 0_u32;
        world.workers[name].way.choose(move |_| {
            calls += 1;
            match calls % 9 {
                3 => Some(Fault::Fail),
                6 => Some(Fault::LoseReply),
                _ => None,
            }
        });
    }
    for _ in 0..10 {
        world.put(50);
        world.run_for(Duration::from_secs(2));
    }

    world.until_all_is_read();

    world.until_shared(&[("a", 2), ("b", 2), ("c", 2)]);
    assert_eq!(world.log.overlaps(), [""; 0]);
    assert_eq!(world.log.replayed(), 0);
}

/// S4-17: a checkpoint that was wanted and did not come about is made before the shard is given
/// away.
#[test]
fn a_shard_is_not_given_away_before_its_checkpoint_is_kept() {
    let mut world = World::new(3, 4);
    world.start("a");
    world.until_shared(&[("a", 4)]);
    world.put(100);
    world.until_all_is_read();
    world.workers["a"].way.every(Call::Write, Fault::Fail);
    world.put(100);
    world.until("given", TTL, |world| world.log.distinct() >= 200);
    world.start("b");
    world.run_for(TTL * 2);
    assert_eq!(world.shares()["b"], 0, "given away with work that is not checkpointed");

    world.workers["a"].way.heal();

    world.until_shared(&[("a", 2), ("b", 2)]);
    world.run_for(TTL);
    let by_b = world.log.count(|event| &*event.worker == "b" && event.is_record());
    assert_eq!(by_b, 0, "b was given what a had worked on");
}

#[test]
fn a_worker_that_stops_waits_until_its_last_checkpoint_is_kept() {
    let mut world = World::new(6, 4);
    world.start("a");
    world.until_shared(&[("a", 4)]);
    world.workers["a"].way.every(Call::Write, Fault::Fail);
    world.put(100);
    world.until("given", TTL, |world| world.log.distinct() >= 100);
    world.workers["a"].handle.stop();
    world.run_for(TTL);
    assert_eq!(world.shares()["a"], 4, "given away with work that is not checkpointed");

    world.workers["a"].way.heal();
    assert_eq!(world.until_ended("a"), Ok(()));
    let worked_on = world.log.count(Event::is_record);

    world.start("b");
    world.until_shared(&[("b", 4)]);
    world.run_for(TTL);
    assert_eq!(world.log.count(Event::is_record), worked_on, "worked on once more");
}

#[test]
fn a_stream_that_fails_is_asked_again_and_nothing_is_lost() {
    let mut world = World::new(4, 4);
    // An answer without records says nothing of whether there are any.
    let faults = Faults { throttled: 0.2, unavailable: 0.2, empty: 0.3, ..Faults::default() };
    world.stream = world.stream.with_faults(7, faults);
    world.start("a");
    world.start("b");
    for _ in 0..10 {
        world.put(50);
        world.run_for(Duration::from_secs(2));
    }

    world.until_all_is_read();

    assert_eq!(world.log.replayed(), 0);
    assert_eq!(world.log.count(|event| event.what == What::LeaseLost), 0);
}

/// S4-30: workers that begin before there is anything to read.
#[test]
fn a_stream_that_cannot_be_listed_yet_is_waited_for() {
    let mut world = World::new(5, 2);
    let never = Faults { unavailable: 1.0, ..Faults::default() };
    world.stream = world.stream.with_faults(1, never);
    world.start("a");
    world.run_for(TTL * 2);
    assert_eq!(world.shares()["a"], 0);

    world.stream.set_faults(Faults::default());
    world.put(50);

    world.until_all_is_read();
}

/// A list that is broken off half way would show half of the workers and of the shards.
#[test]
fn from_rows_that_were_not_all_listed_nothing_is_concluded() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang] {
        let mut world = World::new(7, 6);
        world.start("a");
        world.start("b");
        world.until_shared(&[("a", 3), ("b", 3)]);
        world.workers["a"].way.every(Call::Read, fault);
        world.put(100);
        world.run_for(TTL * 5);

        assert_eq!(world.shares()["a"], 3, "{fault:?}");
        world.until_all_is_read();
        assert_eq!(world.log.count(|event| event.what == What::ShutdownRequested), 0, "{fault:?}");
        assert_eq!(world.log.count(|event| event.what == What::LeaseLost), 0, "{fault:?}");
        world.workers["a"].way.heal();
        world.start("c");
        world.until_shared(&[("a", 2), ("b", 2), ("c", 2)]);
        assert_eq!(world.log.overlaps(), [""; 0]);
    }
}

#[test]
fn who_stops_and_cannot_list_the_rows_gives_away_what_it_has() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang] {
        let mut world = World::new(8, 4);
        world.start("a");
        world.start("b");
        world.until_shared(&[("a", 2), ("b", 2)]);
        world.put(100);
        world.until_all_is_read();
        world.workers["a"].way.every(Call::Read, fault);
        world.run_for(TTL / 2);
        let begun = world.simulation.now();

        assert_eq!(world.stop("a"), Ok(()));

        let took = world.simulation.now().abs_diff(begun);
        assert!(took <= TTL * 3 / 2, "{fault:?}: after {took:?}");
        world.until_shared(&[("b", 4)]);
        world.put(100);
        world.until_all_is_read();
        assert_eq!(world.log.count(|event| event.what == What::LeaseLost), 0, "{fault:?}");
    }
}
