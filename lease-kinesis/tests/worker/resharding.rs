//! Splits and merges of shards while workers read them.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_kinesis::{Shard, ShardId};

use crate::log::EventKind;
use crate::simulated_fleet::{SimulatedFleet, TTL};

fn merge_first_two(fleet: &SimulatedFleet) -> ShardId {
    let mut open: Vec<Shard> = fleet.open_shards();
    open.sort_by_key(|shard| shard.hash_keys.first());
    let (one, other) = (&open[0].id, &open[1].id);
    fleet.simulation.on_network(|| fleet.stream.merge(one, other)).unwrap()
}

fn parents_come_first(fleet: &SimulatedFleet) {
    let mut last: BTreeMap<ShardId, usize> = BTreeMap::new();
    let mut first: BTreeMap<ShardId, usize> = BTreeMap::new();
    for (index, event) in fleet.log.events().into_iter().enumerate() {
        if event.is_record() {
            first.entry(event.shard.clone()).or_insert(index);
            last.insert(event.shard, index);
        }
    }
    for (child, parents) in fleet.lineage() {
        for parent in parents {
            let (Some(started), Some(ended)) = (first.get(&child), last.get(&parent)) else {
                continue;
            };
            assert!(ended < started, "{child} was read before the end of {parent}\n{}", fleet.log);
        }
    }
}

#[test]
fn children_are_read_after_parents_from_their_beginning() {
    for reported in [true, false] {
        let mut fleet = SimulatedFleet::new(1, 4);
        if !reported {
            fleet.stream = fleet.stream.clone().without_reported_children();
        }
        fleet.start("a");
        fleet.start("b");
        fleet.until_shared(&[("a", 2), ("b", 2)]);
        for round in 0..3 {
            fleet.put(100);
            fleet.split(&fleet.open_shards()[round]);
            fleet.put(100);
            merge_first_two(&fleet);
            fleet.put(100);
            fleet.run_for(Duration::from_secs(3));
        }

        fleet.until_all_is_read();

        parents_come_first(&fleet);
        assert_eq!(fleet.log.replayed(), 0);
        fleet.until_shared(&[("a", 2), ("b", 2)]);
    }
}

#[test]
fn late_listed_children_are_found() {
    let mut fleet = SimulatedFleet::new(2, 2);
    let late = fleet.stream.clone().with_late_listing(Duration::from_secs(7));
    fleet.stream = late.without_reported_children();
    fleet.start_with(
        "a",
        {
            let log = fleet.log.of("a");
            move |shard: &_| crate::log::LoggingProcessor::new(log.clone(), shard)
        },
        |worker| worker.with_sync_interval(Duration::from_secs(5)),
    );
    fleet.until_shared(&[("a", 2)]);
    fleet.put(100);
    fleet.split(&fleet.open_shards()[0]);
    fleet.put(100);

    fleet.until_all_is_read();

    parents_come_first(&fleet);
}

/// After a shard's end, the worker lists the shards at intervals of seconds.
#[test]
fn late_listed_children_are_read_within_seconds() {
    let lag = Duration::from_secs(7);
    let mut fleet = SimulatedFleet::new(2, 2);
    fleet.stream = fleet.stream.clone().with_late_listing(lag).without_reported_children();
    fleet.start("a");
    fleet.until_shared(&[("a", 2)]);
    fleet.put(100);
    let closed = fleet.simulation.now();
    fleet.split(&fleet.open_shards()[0]);
    fleet.put(100);

    fleet.until_all_is_read();

    let taken = fleet.simulation.now().abs_diff(closed);
    assert!(taken < lag + TTL, "only after {taken:?}");
    parents_come_first(&fleet);
}

/// The worker crashes at various times between the end of a shard and the start of its children.
#[test]
fn crash_at_end_of_shard_loses_no_record() {
    for after in [0, 100, 200, 300, 400, 600, 900] {
        let mut fleet = SimulatedFleet::new(after, 2);
        fleet.start("a");
        fleet.until_shared(&[("a", 2)]);
        fleet.start("b");
        fleet.put(100);
        fleet.split(&fleet.open_shards()[0]);
        fleet.split(&fleet.open_shards()[0]);
        fleet.put(100);
        fleet.run_for(Duration::from_millis(after));
        fleet.kill("a");
        fleet.put(100);

        fleet.until_all_is_read();

        parents_come_first(&fleet);
    }
}

#[test]
fn rows_of_ended_shards_are_removed() {
    let mut fleet = SimulatedFleet::new(3, 2);
    fleet.start_with(
        "a",
        {
            let log = fleet.log.of("a");
            move |shard: &_| crate::log::LoggingProcessor::new(log.clone(), shard)
        },
        |worker| worker.with_sync_interval(TTL / 2),
    );
    fleet.put(100);
    fleet.split(&fleet.open_shards()[0]);
    fleet.put(100);
    fleet.until_all_is_read();

    fleet.until("only the open shards have rows", TTL * 10, |fleet| fleet.rows() == 3);

    fleet.put(100);
    fleet.until_all_is_read();
    assert_eq!(fleet.log.count(|event| event.kind == EventKind::ShardEnded), 1);
}
