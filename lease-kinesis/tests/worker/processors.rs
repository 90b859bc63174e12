//! Processors that fail, panic, hang, are slow, or want to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, Checkpointer, NeedsRestart, Outcome, ProcessorError, RecordProcessor, ShardContext,
};

use crate::log::{Log, Noting, What};
use crate::world::{TTL, World};

/// What goes wrong, the first times that it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Fails,
    AsksAgain,
    NeedsRestart,
    NeedsRestartAtTheEnd,
    Panics,
    Hangs,
    PanicsAtOnce,
    FailsToBegin,
    StopsShard,
    StopsWorker,
    Skips,
    /// Leaves the end of the shard without a checkpoint.
    ForgetsTheEnd,
}

/// A processor with a trouble, which `times` counts down.
struct Troubled {
    noting: Noting,
    trouble: Trouble,
    times: Arc<AtomicU32>,
}

impl Troubled {
    fn is_in_trouble(&self, trouble: Trouble) -> bool {
        let counted = |times: u32| times.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        self.trouble == trouble && self.times.fetch_update(relaxed, relaxed, counted).is_ok()
    }
}

#[async_trait]
impl RecordProcessor for Troubled {
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        if self.is_in_trouble(Trouble::FailsToBegin) {
            return Err("not ready".into());
        }
        self.noting.initialize(shard).await
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        assert!(!self.is_in_trouble(Trouble::PanicsAtOnce), "as the test wants it");
        if self.is_in_trouble(Trouble::Skips) {
            return Outcome::Skip;
        }
        self.noting.note_records(batch);
        assert!(!self.is_in_trouble(Trouble::Panics), "as the test wants it");
        if self.is_in_trouble(Trouble::Fails) {
            return Outcome::Failed("database away".into());
        }
        if self.is_in_trouble(Trouble::NeedsRestart) {
            return Outcome::Failed(NeedsRestart::new("its process died").into());
        }
        if self.is_in_trouble(Trouble::AsksAgain) {
            return Outcome::Retry(Duration::from_secs(3));
        }
        if self.is_in_trouble(Trouble::Hangs) {
            std::future::pending::<()>().await;
        }
        if self.is_in_trouble(Trouble::StopsShard) {
            return Outcome::StopShard("not here".into());
        }
        if self.is_in_trouble(Trouble::StopsWorker) {
            return Outcome::StopWorker("out of memory".into());
        }
        self.noting.checkpoint(checkpointer).await.into()
    }

    async fn lease_lost(&mut self) {
        self.noting.lease_lost().await;
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        if self.is_in_trouble(Trouble::ForgetsTheEnd) {
            return Ok(());
        }
        if self.is_in_trouble(Trouble::NeedsRestartAtTheEnd) {
            return Err(NeedsRestart::new("its process died").into());
        }
        self.noting.shard_ended(checkpointer).await
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        self.noting.shutdown_requested(checkpointer).await
    }
}

/// A world in which worker `a` has a trouble, so many times.
fn troubled(trouble: Trouble, times: u32) -> (World, Arc<AtomicU32>) {
    let mut world = World::new(1, 3);
    let times = Arc::new(AtomicU32::new(times));
    let (log, left) = (world.log.of("a"), Arc::clone(&times));
    let factory = move |shard: &ShardContext| Troubled {
        noting: Noting::new(log.clone(), shard),
        trouble,
        times: Arc::clone(&left),
    };
    world.start_with("a", factory, |worker| worker.with_batch_limit(TTL * 2));
    (world, times)
}

/// Waits until worker `a` has worked on so many records, with success.
fn until_worked_on(world: &mut World, records: u64) {
    let worked_on = |world: &World| world.workers["a"].handle.status().counters.records;
    world.until("all is worked on", TTL * 10, |world| worked_on(world) >= records);
    world.until_all_is_read();
}

fn begun(log: &Log) -> usize {
    log.count(|event| event.what == What::Begun)
}

/// S5.f5, #10 of the Kinesis Client Library: nothing is skipped.
#[test]
fn a_batch_that_fails_is_tried_again_by_the_same_processor() {
    let (mut world, times) = troubled(Trouble::Fails, 5);
    world.put(60);

    until_worked_on(&mut world, 60);

    assert_eq!(times.load(Ordering::Relaxed), 0);
    assert_eq!(begun(&world.log), 3, "the processors are the same");
    let counters = world.workers["a"].handle.status().counters;
    assert_eq!(counters.failed_batches, 5);
    assert!(world.log.replayed() > 0);
}

#[test]
fn a_batch_is_tried_again_when_its_processor_asks_for_that() {
    let (mut world, _) = troubled(Trouble::AsksAgain, 1);
    world.put(60);

    until_worked_on(&mut world, 60);

    assert_eq!(begun(&world.log), 3);
    assert!(world.simulation.now() >= Duration::from_secs(3));
}

#[test]
fn after_a_panic_another_processor_begins_at_the_checkpoint() {
    for trouble in [Trouble::Panics, Trouble::PanicsAtOnce] {
        let (mut world, _) = troubled(trouble, 2);
        world.put(60);

        until_worked_on(&mut world, 60);

        assert_eq!(begun(&world.log), 5, "{trouble:?}");
        assert_eq!(world.workers["a"].handle.status().counters.restarts, 2, "{trouble:?}");
    }
}

#[test]
fn a_processor_that_needs_it_is_made_anew_and_begins_at_the_checkpoint() {
    let (mut world, times) = troubled(Trouble::NeedsRestart, 2);
    world.put(60);

    until_worked_on(&mut world, 60);

    assert_eq!(times.load(Ordering::Relaxed), 0);
    assert_eq!(begun(&world.log), 5);
    assert_eq!(world.workers["a"].handle.status().counters.restarts, 2);
    assert!(world.log.replayed() > 0);
}

#[test]
fn a_processor_that_needs_it_at_the_end_of_its_shard_is_made_anew() {
    let (mut world, times) = troubled(Trouble::NeedsRestartAtTheEnd, 2);
    world.put(60);
    let shard = world.open_shards()[0].clone();
    let middle = shard.hash_keys.first() + (shard.hash_keys.last() - shard.hash_keys.first()) / 2;
    world.simulation.on_network(|| world.stream.split(&shard.id, middle)).unwrap();
    world.put(60);

    world.until_all_is_read();

    assert_eq!(times.load(Ordering::Relaxed), 0);
    assert_eq!(begun(&world.log), 3 + 2 + 2, "of three shards, two more, and two anew");
}

/// One that dies now and then has the patience of the first time each time.
#[test]
fn restarts_are_counted_from_the_last_checkpoint_on() {
    let mut world = World::new(1, 1);
    let log = world.log.of("a");
    let made = Arc::new(AtomicU32::new(0));
    let factory = move |shard: &ShardContext| Troubled {
        noting: Noting::new(log.clone(), shard),
        trouble: Trouble::NeedsRestart,
        // Every other one is in trouble at once.
        times: Arc::new(AtomicU32::new(made.fetch_add(1, Ordering::Relaxed) % 2)),
    };
    world.start_with("a", factory, |worker| worker.with_max_restarts(1));

    for _ in 0..2 {
        world.put(20);
        world.until_all_is_read();
    }

    assert_eq!(world.workers["a"].handle.status().counters.obtained, 1, "it was given up");
}

#[test]
fn a_batch_that_takes_longer_than_its_limit_is_broken_off_and_begun_anew() {
    let (mut world, _) = troubled(Trouble::Hangs, 1);
    world.put(60);

    until_worked_on(&mut world, 60);

    assert_eq!(begun(&world.log), 4);
    assert!(world.simulation.now() >= TTL * 2, "broken off before its limit");
}

/// The lease is kept: heartbeats do not wait for the processor.
#[test]
fn a_processor_may_take_longer_than_a_ttl() {
    let mut world = World::new(2, 2);
    let log = world.log.of("a");
    let slow = move |shard: &_| Noting::slow(log.clone(), shard, TTL * 3);
    world.start_with("a", slow, |worker| worker);
    world.put(40);

    world.until_all_is_read();
    let kept = |world: &World| world.log.count(|event| event.what == What::Checkpointed) >= 2;
    world.until("both batches are checkpointed", TTL * 8, kept);

    assert_eq!(world.log.count(|event| event.what == What::LeaseLost), 0);
    assert_eq!(world.log.replayed(), 0);
}

#[test]
fn a_processor_that_cannot_begin_is_made_anew() {
    let (mut world, times) = troubled(Trouble::FailsToBegin, 4);
    world.put(60);

    world.until_all_is_read();

    assert_eq!(times.load(Ordering::Relaxed), 0);
    assert_eq!(world.log.replayed(), 0);
}

#[test]
fn a_shard_that_is_given_up_is_read_again_after_a_while() {
    let (mut world, _) = troubled(Trouble::StopsShard, 1);
    world.put(60);

    until_worked_on(&mut world, 60);

    assert!(world.simulation.now() >= Duration::from_secs(5), "left alone for a while");
    assert_eq!(begun(&world.log), 4);
}

/// S1.f15: one that fails for good takes nothing else with it.
#[test]
fn a_processor_that_always_fails_keeps_no_other_shard_from_being_read() {
    let mut world = World::new(3, 3);
    let log = world.log.of("a");
    let factory = move |shard: &ShardContext| {
        let fails = shard.shard.as_str().ends_with('1');
        Troubled {
            noting: Noting::new(log.clone(), shard),
            trouble: if fails { Trouble::PanicsAtOnce } else { Trouble::Fails },
            times: Arc::new(AtomicU32::new(if fails { u32::MAX } else { 0 })),
        }
    };
    world.start_with("a", factory, |worker| worker.with_max_restarts(3));
    world.put(90);
    let of_others = |world: &World| {
        let everything = world.stream.everything_put();
        everything.iter().filter(|put| !put.shard.as_str().ends_with('1')).count()
    };

    let wanted = of_others(&world);
    world.until("the others are read", TTL * 10, |world| world.log.distinct() >= wanted);
    world.run_for(TTL * 3);
    world.put(90);

    let wanted = of_others(&world);
    world.until("and go on", TTL * 10, |world| world.log.distinct() >= wanted);
    assert_eq!(world.log.distinct(), wanted);
}

#[test]
fn a_processor_can_stop_the_worker_which_hands_over_what_it_has() {
    let (mut world, _) = troubled(Trouble::StopsWorker, 1);
    world.start("b");
    world.put(60);

    let ended = world.until_ended("a");

    assert_eq!(ended, Err("a processor stopped the worker".to_owned()));
    world.until_shared(&[("b", 3)]);
    world.until_all_is_read();
}

#[test]
fn what_is_skipped_is_skipped_since_the_processor_said_so_and_is_counted() {
    let (mut world, _) = troubled(Trouble::Skips, 1);
    world.put(60);

    world.until("the rest is read", TTL * 10, |world| {
        let counters = world.workers["a"].handle.status().counters;
        counters.skipped > 0 && counters.skipped + counters.records == 60
    });
}

#[test]
fn the_end_of_a_shard_is_told_again_until_it_is_checkpointed() {
    let (mut world, times) = troubled(Trouble::ForgetsTheEnd, 2);
    world.put(60);
    let shard = world.open_shards()[0].clone();
    let middle = shard.hash_keys.first() + (shard.hash_keys.last() - shard.hash_keys.first()) / 2;
    world.simulation.on_network(|| world.stream.split(&shard.id, middle)).unwrap();
    world.put(60);

    world.until_all_is_read();

    assert_eq!(times.load(Ordering::Relaxed), 0);
}
