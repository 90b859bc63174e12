//! Processors that fail, panic, hang, are slow, or stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, Checkpointer, NeedsRestart, Outcome, ProcessorError, RecordProcessor, ShardContext,
};

use crate::log::{EventKind, Log, LoggingProcessor};
use crate::simulated_fleet::{SimulatedFleet, TTL};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessorFault {
    Fails,
    Retries,
    NeedsRestart,
    NeedsRestartAtTheEnd,
    Panics,
    Hangs,
    PanicsBeforeWork,
    FailsToStart,
    StopsShard,
    StopsWorker,
    Skips,
    ForgetsTheEnd,
}

/// The fault occurs until `times` has reached zero. Processors may share `times`.
struct FaultyProcessor {
    logging: LoggingProcessor,
    fault: ProcessorFault,
    times: Arc<AtomicU32>,
}

impl FaultyProcessor {
    fn has_fault(&self, fault: ProcessorFault) -> bool {
        let counted = |times: u32| times.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        self.fault == fault && self.times.fetch_update(relaxed, relaxed, counted).is_ok()
    }
}

#[async_trait]
impl RecordProcessor for FaultyProcessor {
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        if self.has_fault(ProcessorFault::FailsToStart) {
            return Err("not ready".into());
        }
        self.logging.initialize(shard).await
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        assert!(!self.has_fault(ProcessorFault::PanicsBeforeWork), "injected by the test");
        if self.has_fault(ProcessorFault::Skips) {
            return Outcome::Skip;
        }
        self.logging.note_records(batch);
        assert!(!self.has_fault(ProcessorFault::Panics), "injected by the test");
        if self.has_fault(ProcessorFault::Fails) {
            return Outcome::Failed("database away".into());
        }
        if self.has_fault(ProcessorFault::NeedsRestart) {
            return Outcome::Failed(NeedsRestart::new("its process died").into());
        }
        if self.has_fault(ProcessorFault::Retries) {
            return Outcome::Retry(Duration::from_secs(3));
        }
        if self.has_fault(ProcessorFault::Hangs) {
            std::future::pending::<()>().await;
        }
        if self.has_fault(ProcessorFault::StopsShard) {
            return Outcome::StopShard("not here".into());
        }
        if self.has_fault(ProcessorFault::StopsWorker) {
            return Outcome::StopWorker("out of memory".into());
        }
        self.logging.checkpoint(checkpointer).await.into()
    }

    async fn lease_lost(&mut self) {
        self.logging.lease_lost().await;
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        if self.has_fault(ProcessorFault::ForgetsTheEnd) {
            return Ok(());
        }
        if self.has_fault(ProcessorFault::NeedsRestartAtTheEnd) {
            return Err(NeedsRestart::new("its process died").into());
        }
        self.logging.shard_ended(checkpointer).await
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        self.logging.shutdown_requested(checkpointer).await
    }
}

fn with_fault(fault: ProcessorFault, times: u32) -> (SimulatedFleet, Arc<AtomicU32>) {
    let mut fleet = SimulatedFleet::new(1, 3);
    let times = Arc::new(AtomicU32::new(times));
    let (log, left) = (fleet.log.of("a"), Arc::clone(&times));
    let factory = move |shard: &ShardContext| FaultyProcessor {
        logging: LoggingProcessor::new(log.clone(), shard),
        fault,
        times: Arc::clone(&left),
    };
    fleet.start_with("a", factory, |worker| worker.with_batch_limit(TTL * 2));
    (fleet, times)
}

fn until_processed(fleet: &mut SimulatedFleet, records: u64) {
    let processed = |fleet: &SimulatedFleet| fleet.workers["a"].handle.status().counters.records;
    fleet.until("all is processed", TTL * 10, |fleet| processed(fleet) >= records);
    fleet.until_all_is_read();
}

fn started(log: &Log) -> usize {
    log.count(|event| event.kind == EventKind::Started)
}

/// The Kinesis Client Library skips such records (its issue 10).
#[test]
fn failed_batch_is_retried_by_same_processor() {
    let (mut fleet, times) = with_fault(ProcessorFault::Fails, 5);
    fleet.put(60);

    until_processed(&mut fleet, 60);

    assert_eq!(times.load(Ordering::Relaxed), 0);
    assert_eq!(started(&fleet.log), 3, "no processor was replaced");
    let counters = fleet.workers["a"].handle.status().counters;
    assert_eq!(counters.failed_batches, 5);
    assert!(fleet.log.replayed() > 0);
}

#[test]
fn batch_is_retried_if_processor_asks_for_it() {
    let (mut fleet, _) = with_fault(ProcessorFault::Retries, 1);
    fleet.put(60);

    until_processed(&mut fleet, 60);

    assert_eq!(started(&fleet.log), 3);
    assert!(fleet.simulation.now() >= Duration::from_secs(3));
}

#[test]
fn processor_after_panic_starts_at_checkpoint() {
    for fault in [ProcessorFault::Panics, ProcessorFault::PanicsBeforeWork] {
        let (mut fleet, _) = with_fault(fault, 2);
        fleet.put(60);

        until_processed(&mut fleet, 60);

        assert_eq!(started(&fleet.log), 5, "{fault:?}");
        assert_eq!(fleet.workers["a"].handle.status().counters.restarts, 2, "{fault:?}");
    }
}

#[test]
fn processor_that_needs_restart_is_replaced() {
    let (mut fleet, times) = with_fault(ProcessorFault::NeedsRestart, 2);
    fleet.put(60);

    until_processed(&mut fleet, 60);

    assert_eq!(times.load(Ordering::Relaxed), 0);
    assert_eq!(started(&fleet.log), 5);
    assert_eq!(fleet.workers["a"].handle.status().counters.restarts, 2);
    assert!(fleet.log.replayed() > 0);
}

#[test]
fn processor_that_needs_restart_at_end_is_replaced() {
    let (mut fleet, times) = with_fault(ProcessorFault::NeedsRestartAtTheEnd, 2);
    fleet.put(60);
    fleet.split(&fleet.open_shards()[0]);
    fleet.put(60);

    fleet.until_all_is_read();

    assert_eq!(times.load(Ordering::Relaxed), 0);
    assert_eq!(started(&fleet.log), 3 + 2 + 2, "three shards, two children, two replacements");
}

#[test]
fn restarts_are_counted_since_last_checkpoint() {
    let mut fleet = SimulatedFleet::new(1, 1);
    let log = fleet.log.of("a");
    let made = Arc::new(AtomicU32::new(0));
    let factory = move |shard: &ShardContext| FaultyProcessor {
        logging: LoggingProcessor::new(log.clone(), shard),
        fault: ProcessorFault::NeedsRestart,
        times: Arc::new(AtomicU32::new(made.fetch_add(1, Ordering::Relaxed) % 2)),
    };
    fleet.start_with("a", factory, |worker| worker.with_max_restarts(1));

    for _ in 0..2 {
        fleet.put(20);
        fleet.until_all_is_read();
    }

    assert_eq!(fleet.workers["a"].handle.status().counters.obtained, 1, "the shard was released");
}

#[test]
fn batch_beyond_its_time_limit_is_cancelled_and_retried() {
    let (mut fleet, _) = with_fault(ProcessorFault::Hangs, 1);
    fleet.put(60);

    until_processed(&mut fleet, 60);

    assert_eq!(started(&fleet.log), 4);
    assert!(fleet.simulation.now() >= TTL * 2, "cancelled before its limit");
}

/// Heartbeats do not wait for the processor.
#[test]
fn lease_is_kept_while_processor_exceeds_ttl() {
    let mut fleet = SimulatedFleet::new(2, 2);
    let log = fleet.log.of("a");
    let slow = move |shard: &_| LoggingProcessor::slow(log.clone(), shard, TTL * 3);
    fleet.start_with("a", slow, |worker| worker);
    fleet.put(40);

    fleet.until_all_is_read();
    let kept = |fleet: &SimulatedFleet| {
        fleet.log.count(|event| event.kind == EventKind::Checkpointed) >= 2
    };
    fleet.until("both batches are checkpointed", TTL * 8, kept);

    assert_eq!(fleet.log.count(|event| event.kind == EventKind::LeaseLost), 0);
    assert_eq!(fleet.log.replayed(), 0);
}

#[test]
fn processor_that_cannot_start_is_replaced() {
    let (mut fleet, times) = with_fault(ProcessorFault::FailsToStart, 4);
    fleet.put(60);

    fleet.until_all_is_read();

    assert_eq!(times.load(Ordering::Relaxed), 0);
    assert_eq!(fleet.log.replayed(), 0);
}

#[test]
fn stopped_shard_is_read_again_after_backoff() {
    let (mut fleet, _) = with_fault(ProcessorFault::StopsShard, 1);
    fleet.put(60);

    until_processed(&mut fleet, 60);

    assert!(fleet.simulation.now() >= Duration::from_secs(5), "the backoff has passed");
    assert_eq!(started(&fleet.log), 4);
}

#[test]
fn failing_processor_does_not_affect_other_shards() {
    let mut fleet = SimulatedFleet::new(3, 3);
    let log = fleet.log.of("a");
    let factory = move |shard: &ShardContext| {
        let fails = shard.shard.as_str().ends_with('1');
        FaultyProcessor {
            logging: LoggingProcessor::new(log.clone(), shard),
            fault: if fails { ProcessorFault::PanicsBeforeWork } else { ProcessorFault::Fails },
            times: Arc::new(AtomicU32::new(if fails { u32::MAX } else { 0 })),
        }
    };
    fleet.start_with("a", factory, |worker| worker.with_max_restarts(3));
    fleet.put(90);
    let of_others = |fleet: &SimulatedFleet| {
        let everything = fleet.stream.everything_put();
        everything.iter().filter(|put| !put.shard.as_str().ends_with('1')).count()
    };

    let wanted = of_others(&fleet);
    fleet.until("the others are read", TTL * 10, |fleet| fleet.log.distinct() >= wanted);
    fleet.run_for(TTL * 3);
    fleet.put(90);

    let wanted = of_others(&fleet);
    fleet.until("the others continue", TTL * 10, |fleet| fleet.log.distinct() >= wanted);
    assert_eq!(fleet.log.distinct(), wanted);
}

#[test]
fn worker_stopped_by_processor_hands_over() {
    let (mut fleet, _) = with_fault(ProcessorFault::StopsWorker, 1);
    fleet.start("b");
    fleet.put(60);

    let ended = fleet.until_ended("a");

    assert_eq!(ended, Err("a processor stopped the worker".to_owned()));
    fleet.until_shared(&[("b", 3)]);
    fleet.until_all_is_read();
}

#[test]
fn skipped_records_are_counted() {
    let (mut fleet, _) = with_fault(ProcessorFault::Skips, 1);
    fleet.put(60);

    fleet.until("the rest is read", TTL * 10, |fleet| {
        let counters = fleet.workers["a"].handle.status().counters;
        counters.skipped > 0 && counters.skipped + counters.records == 60
    });
}

#[test]
fn end_of_shard_is_reported_until_checkpointed() {
    let (mut fleet, times) = with_fault(ProcessorFault::ForgetsTheEnd, 2);
    fleet.put(60);
    fleet.split(&fleet.open_shards()[0]);
    fleet.put(60);

    fleet.until_all_is_read();

    assert_eq!(times.load(Ordering::Relaxed), 0);
}
