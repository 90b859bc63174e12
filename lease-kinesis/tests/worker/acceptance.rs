//! Tests from earlier Kinesis consumers that the other test files do not cover.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::Lessee;
use lease_kinesis::{
    Batch, Checkpointer, Checkpoints, Outcome, ProcessorError, RecordProcessor, ShardContext,
};

use crate::log::{Event, EventKind, LoggingProcessor};
use crate::mode;
use crate::simulated_fleet::{SimulatedFleet, TTL};

fn records(fleet: &SimulatedFleet) -> usize {
    fleet.log.count(Event::is_record)
}

#[test]
fn empty_shard_starts_its_processor_and_delivers_no_batch() {
    let mut fleet = SimulatedFleet::new(1, 5);
    fleet.start("a");

    fleet.until_shared(&[("a", 5)]);
    fleet.run_for(TTL);

    assert_eq!(fleet.log.count(|event| event.kind == EventKind::Started), 5);
    assert_eq!(records(&fleet), 0);
    assert_eq!(fleet.log.count(|event| event.kind == EventKind::Checkpointed), 0);
}

#[test]
fn record_goes_to_processor_of_its_shard() {
    let mut fleet = SimulatedFleet::new(2, 5);
    fleet.start("a");
    fleet.put(1);

    fleet.until_all_is_read();

    let put = fleet.stream.everything_put();
    let event = fleet.log.events().into_iter().find(Event::is_record).unwrap();
    assert_eq!(event.shard, put[0].shard);
}

#[test]
fn shards_are_shared_evenly_up_to_a_limit() {
    let mut fleet = SimulatedFleet::new(3, 10);
    fleet.start("a");
    fleet.start("b");
    fleet.until_shared(&[("a", 5), ("b", 5)]);

    let log = fleet.log.of("c");
    let factory = move |shard: &_| LoggingProcessor::new(log.clone(), shard);
    fleet.start_with("c", factory, |worker| worker.with_max_shards(2));

    fleet.until_shared(&[("a", 4), ("b", 4), ("c", 2)]);
}

#[test]
fn processor_gets_no_records_after_shutdown_request() {
    let mut fleet = SimulatedFleet::new(10, 8);
    fleet.start("a");
    fleet.until_shared(&[("a", 8)]);
    fleet.put(200);
    fleet.start("b");
    for _ in 0..20 {
        fleet.put(50);
        fleet.run_for(Duration::from_millis(500));
    }
    fleet.until_shared(&[("a", 4), ("b", 4)]);
    fleet.until_all_is_read();

    let events = fleet.log.events();
    let shut_down = |event: &Event| event.kind == EventKind::ShutdownRequested;
    assert_eq!(events.iter().filter(|event| shut_down(event)).count(), 4);
    for (index, last) in events.iter().enumerate().filter(|(_, event)| shut_down(event)) {
        let after = &events[index..];
        let is_given = |event: &Event| {
            let same = event.shard == last.shard && event.token == last.token;
            same && event.is_record()
        };
        assert!(
            !after.iter().any(is_given),
            "records were delivered after the shutdown request\n{}",
            fleet.log
        );
    }
}

#[test]
fn ended_shard_is_not_read_again_by_new_worker() {
    let mut fleet = SimulatedFleet::new(4, 2);
    fleet.start("a");
    fleet.put(50);
    let shard = fleet.open_shards()[0].clone();
    fleet.split(&shard);
    fleet.until("the shard has ended", TTL * 3, |fleet| {
        fleet.log.count(|event| event.kind == EventKind::ShardEnded) == 1
    });
    fleet.until_shared(&[("a", 3)]);
    assert_eq!(fleet.stop("a"), Ok(()));

    fleet.start("b");
    fleet.until_shared(&[("b", 3)]);
    fleet.put(50);
    fleet.until_all_is_read();

    let again = |event: &Event| &*event.worker == "b" && event.shard == shard.id;
    assert_eq!(fleet.log.count(again), 0);
    assert_eq!(fleet.log.replayed(), 0);
}

#[test]
fn restarted_worker_of_same_name_gets_its_shards_back() {
    let mut fleet = SimulatedFleet::new(5, 4);
    fleet.start("slot-0");
    fleet.start("slot-1");
    fleet.until_shared(&[("slot-0", 2), ("slot-1", 2)]);
    fleet.run_for(Duration::from_secs(1));
    let of_slot = |fleet: &SimulatedFleet| {
        let status = fleet.workers["slot-1"].handle.status();
        status.shards.into_iter().map(|shard| shard.shard).collect::<Vec<_>>()
    };
    let had = of_slot(&fleet);
    fleet.kill("slot-1");

    fleet.start("slot-1");
    fleet.until_shared(&[("slot-0", 2), ("slot-1", 2)]);

    assert_eq!(of_slot(&fleet), had);
    fleet.put(100);
    fleet.until_all_is_read();
    assert_eq!(fleet.log.overlaps(), [""; 0]);
}

struct LeavesCheckpoints(LoggingProcessor);

#[async_trait]
impl RecordProcessor for LeavesCheckpoints {
    async fn process_records(&mut self, batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        self.0.note_records(batch);
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        self.0.note(EventKind::ShutdownRequested);
        Ok(())
    }
}

#[test]
fn worker_checkpoints_before_it_stops() {
    let mut fleet = SimulatedFleet::new(6, 4);
    let log = fleet.log.of("a");
    let factory = move |shard: &_| LeavesCheckpoints(LoggingProcessor::new(log.clone(), shard));
    let rarely = Checkpoints::Every(Duration::from_hours(1));
    fleet.start_with("a", factory, |worker| worker.with_checkpoints(rarely));
    fleet.put(100);
    fleet.until("all is processed", TTL * 3, |fleet| records(fleet) == 100);

    assert_eq!(fleet.stop("a"), Ok(()));
    fleet.start("b");
    fleet.until_shared(&[("b", 4)]);
    fleet.put(100);
    fleet.until_all_is_read();

    assert_eq!(fleet.log.replayed(), 0);
}

struct NeverCheckpoints(LoggingProcessor);

#[async_trait]
impl RecordProcessor for NeverCheckpoints {
    async fn process_records(&mut self, batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        self.0.note_records(batch);
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        Ok(())
    }
}

#[test]
fn records_without_checkpoint_are_delivered_again() {
    let mut fleet = SimulatedFleet::new(7, 2);
    let log = fleet.log.of("a");
    let factory = move |shard: &_| NeverCheckpoints(LoggingProcessor::new(log.clone(), shard));
    fleet.start_with("a", factory, |worker| worker);
    fleet.put(80);
    fleet.until("all is processed", TTL * 3, |fleet| records(fleet) == 80);
    assert_eq!(fleet.stop("a"), Ok(()));

    fleet.start("b");
    fleet.until("all is delivered again", TTL * 3, |fleet| records(fleet) == 160);

    fleet.until_all_is_read();
}

#[test]
fn shard_is_read_after_target_of_hand_over_crashes() {
    for late in 0..12 {
        let mut fleet = SimulatedFleet::new(late, 6);
        fleet.start("a");
        fleet.start("b");
        fleet.until_shared(&[("a", 3), ("b", 3)]);
        fleet.start("c");
        fleet.until("a shard is handed over to c", TTL * 3, |fleet| {
            fleet.log.count(|event| event.kind == EventKind::ShutdownRequested) > 0
        });
        fleet.run_for(Duration::from_millis(late * 7));
        fleet.kill("c");
        fleet.put(100);

        fleet.until_shared(&[("a", 3), ("b", 3)]);

        fleet.until_all_is_read();
        assert_eq!(fleet.log.replayed(), 0);
    }
}

#[test]
fn shard_is_read_after_source_of_hand_over_crashes() {
    for late in 0..12 {
        let mut fleet = SimulatedFleet::new(late, 6);
        fleet.start("a");
        fleet.until_shared(&[("a", 6)]);
        fleet.start("b");
        fleet.until("a hands a shard over", TTL * 3, |fleet| {
            fleet.log.count(|event| event.kind == EventKind::ShutdownRequested) > 0
        });
        fleet.run_for(Duration::from_millis(late * 7));
        fleet.kill("a");
        fleet.put(100);

        fleet.until_shared(&[("b", 6)]);

        fleet.until_all_is_read();
    }
}

/// The crashed worker's share of the free shards stays free until the crashed worker no longer counts for the
/// plan.
#[test]
fn expired_shards_are_not_obtained_before_unowned_ones() {
    let mut fleet = SimulatedFleet::new(11, 4);
    fleet.start("a");
    fleet.start("b");
    fleet.until_shared(&[("a", 2), ("b", 2)]);
    fleet.run_for(TTL);
    let reads = |name: &str| {
        let status = fleet.workers[name].handle.status();
        status.shards.into_iter().map(|shard| shard.shard).collect::<Vec<_>>()
    };
    let (of_a, of_b) = (reads("a"), reads("b"));
    fleet.kill("b");
    let shard = fleet.open_shards().into_iter().find(|shard| shard.id == of_a[0]).unwrap();
    fleet.split(&shard);

    let all_started =
        |fleet: &SimulatedFleet| fleet.log.count(|event| event.kind == EventKind::Started) == 8;
    fleet.until("all shards are read", TTL * 6, all_started);

    let started = fleet.log.events().into_iter().filter(|event| event.kind == EventKind::Started);
    let (expired, unowned): (Vec<_>, Vec<_>) =
        started.skip(4).partition(|event| of_b.contains(&event.shard));
    assert_eq!((unowned.len(), expired.len()), (2, 2), "{}", fleet.log);
    let first_expired = expired.iter().map(|event| event.at).min().unwrap();
    assert!(unowned[0].at < first_expired, "{}", fleet.log);
    assert!(unowned.iter().all(|event| event.at <= first_expired), "{}", fleet.log);
}

#[test]
fn evicted_lease_is_lost_and_shard_is_read_again() {
    let mut fleet = SimulatedFleet::new(8, 2);
    fleet.start("a");
    fleet.until_shared(&[("a", 2)]);
    fleet.run_for(Duration::from_secs(1));
    let shard = fleet.workers["a"].handle.status().shards.remove(0);
    let key = format!("shop/shards/{}", shard.shard).parse().unwrap();
    let key = mode::evictable(&key, "a");
    let token = fleet.holder(&key).unwrap().token.unwrap();

    assert!(fleet.evict(&key, token));
    fleet.until("the processor is notified", TTL * 2, |fleet| {
        fleet.log.count(|event| event.kind == EventKind::LeaseLost) == mode::LOST_OF_TWO
    });

    fleet.until_shared(&[("a", 2)]);
    fleet.put(50);
    fleet.until_all_is_read();
    assert_eq!(fleet.log.count(|event| event.kind == EventKind::ShardEnded), 0);
}

#[test]
fn workers_without_a_name_get_different_names() {
    use lease_kinesis::{SimStream, Worker};
    use lease_memory::MemoryStore;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _inside = runtime.enter();
    let name = || {
        let factory = |_: &ShardContext| -> LeavesCheckpoints { unreachable!("nothing is read") };
        let worker = Worker::builder("shop", MemoryStore::new(), SimStream::new(1), factory);
        worker.build().unwrap().name().clone()
    };

    let (one, other): (Lessee, Lessee) = (name(), name());

    assert_ne!(one, other);
    assert!(one.as_str().contains(&std::process::id().to_string()), "{one}");
}

#[test]
fn stopped_worker_leaves_no_row() {
    let mut fleet = SimulatedFleet::new(9, 2);
    fleet.start("a");
    fleet.until_shared(&[("a", 2)]);
    let key = "shop/workers/a".parse().unwrap();
    assert!(fleet.holder(&key).is_some());

    assert_eq!(fleet.stop("a"), Ok(()));

    assert_eq!(fleet.rows_of_workers(), 0);
    assert!(fleet.holder(&key).is_none());
}
