//! Checkpointers that outlive their processors, and checkpoints whose answers do not come.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault};
use lease_kinesis::{
    Batch, CheckpointError, Checkpointed, Checkpointer, Checkpoints, Outcome, ProcessorError,
    RecordNumber, RecordProcessor, ShardContext, SimStream, WorkerError, WorkerHandle,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::setting::{IN_THE_END, SOON, Table, checkpoint, table, until, worker};

/// A stream of one shard, with records in it.
fn stream() -> SimStream {
    let stream = SimStream::new(1);
    stream.put_all([("a", "1"), ("b", "2"), ("c", "3")]);
    stream
}

/// How a processor ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Panics,
    Hangs,
    StopsShard,
    StopsWorker,
}

/// Ends over its first batch, and leaves its checkpointer to others.
struct Leaving {
    end: Arc<Mutex<Option<End>>>,
    left: Arc<Mutex<Vec<Checkpointer>>>,
}

#[async_trait]
impl RecordProcessor for Leaving {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.left.lock().unwrap().push(checkpointer.clone());
        let end = self.end.lock().unwrap().take();
        assert!(!matches!(end, Some(End::Panics)), "as the test wants it");
        match end {
            Some(End::Hangs) => std::future::pending().await,
            Some(End::StopsShard) => Outcome::StopShard("not here".into()),
            Some(End::StopsWorker) => Outcome::StopWorker("out of memory".into()),
            Some(End::Panics) | None => Outcome::Continue,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpointer_ends_with_its_processor_however_that_ends() {
    for end in [End::Panics, End::Hangs, End::StopsShard, End::StopsWorker] {
        let (table, stream) = (table(), stream());
        let ends = Arc::new(Mutex::new(Some(end)));
        let left: Arc<Mutex<Vec<Checkpointer>>> = Arc::default();
        let leaves = Arc::clone(&left);
        let factory =
            move |_: &ShardContext| Leaving { end: Arc::clone(&ends), left: Arc::clone(&leaves) };
        let worker = worker(&table, &stream, factory).with_batch_limit(Duration::from_secs(10));
        let running = tokio::spawn(worker.build().unwrap().run());
        let is_over = || left.lock().unwrap().len() == 2 || running.is_finished();

        until("another processor has the batch, or the worker is gone", IN_THE_END, is_over).await;

        let left = left.lock().unwrap().clone();
        let late = left[0].checkpoint().await;
        assert!(matches!(late, Err(CheckpointError::Over)), "{end:?}: {late:?}");
        assert_eq!(checkpoint(&table).await, "TRIM_HORIZON", "{end:?}: the batch failed");
        if let Some(present) = left.get(1) {
            present.checkpoint().await.unwrap();
            assert_ne!(checkpoint(&table).await, "TRIM_HORIZON", "{end:?}");
        }
    }
}

/// Never gets on.
struct Stuck;

#[async_trait]
impl RecordProcessor for Stuck {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Retry(Duration::from_secs(1))
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_is_not_checkpointed_by_the_worker() {
    let (table, stream) = (table(), stream());
    let worker = worker(&table, &stream, |_: &ShardContext| Stuck);
    let worker = worker.with_checkpoints(Checkpoints::Every(Duration::from_millis(1)));
    let worker = worker.build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    until("it is tried again", IN_THE_END, || handle.status().counters.failed_batches > 3).await;

    handle.stop();
    running.await.unwrap().unwrap();

    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON");
}

/// Owes a checkpoint, and panics. The next processor has nothing left to process.
struct OwesAndPanics {
    is_first: bool,
    table: Table,
    begun_at: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl RecordProcessor for OwesAndPanics {
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        self.begun_at.lock().unwrap().push(shard.position.to_string());
        Ok(())
    }

    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if self.is_first {
            self.table.every(Call::Write, Fault::Fail);
            let owed = checkpointer.checkpoint().await.unwrap();
            assert!(!matches!(owed, Checkpointed::Owed(_)), "as the test wants it");
        }
        Outcome::Retry(Duration::from_secs(1))
    }
}

/// The processor has finished the records before it asked for the checkpoint.
#[tokio::test(start_paused = true)]
async fn processor_after_a_panic_begins_after_the_owed_checkpoint() {
    let (table, stream) = (table(), stream());
    let last = stream.everything_put().pop().unwrap().record.sequence;
    let (begun_at, faulty) = (Arc::<Mutex<Vec<String>>>::default(), table.clone());
    let begins = Arc::clone(&begun_at);
    let factory = move |_: &ShardContext| OwesAndPanics {
        is_first: begins.lock().unwrap().is_empty(),
        table: faulty.clone(),
        begun_at: Arc::clone(&begins),
    };
    let worker = worker(&table, &stream, factory).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    until("the next begins", IN_THE_END, || begun_at.lock().unwrap().len() == 2).await;

    sleep(Duration::from_secs(20)).await;
    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON", "no write goes through");
    table.heal();
    sleep(SOON).await;

    assert_eq!(*begun_at.lock().unwrap(), ["TRIM_HORIZON", last.as_str()]);
    assert_eq!(checkpoint(&table).await, last.as_str());
    handle.stop();
    running.await.unwrap().unwrap();
}

/// Has a task of its own make a checkpoint that is never answered, and panics.
struct LeavesItHanging(Table);

#[async_trait]
impl RecordProcessor for LeavesItHanging {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.0.next(Call::Write, Fault::Hang);
        let checkpointer = checkpointer.clone();
        let checkpoint = tokio::spawn(async move { checkpointer.checkpoint().await });
        tokio::task::yield_now().await;
        assert!(checkpoint.is_finished(), "as the test wants it");
        Outcome::Continue
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_hangs_keeps_no_shard_from_being_given_up_at_its_loss() {
    let (table, stream) = (table(), stream());
    let faulty = table.clone();
    let factory = move |_: &ShardContext| LeavesItHanging(faulty.clone());
    let worker = worker(&table, &stream, factory).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    until("a processor has panicked", IN_THE_END, || handle.status().counters.restarts == 1).await;
    sleep(Duration::from_secs(3)).await;

    table.every(Call::Heartbeat, Fault::Hang);

    until("the loss is noticed", IN_THE_END, || handle.status().counters.lost == 1).await;
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_panics_is_asked_again() {
    let (table, stream) = (table(), stream());
    let asked = AtomicUsize::new(0);
    let factory = move |_: &ShardContext| {
        assert!(asked.fetch_add(1, Ordering::Relaxed) > 0, "as the test wants it");
        Leaving { end: Arc::default(), left: Arc::default() }
    };
    let worker = worker(&table, &stream, factory).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());

    until("all is worked on", IN_THE_END, || handle.status().counters.records == 3).await;

    assert_eq!(handle.status().counters.restarts, 1, "under the same lease");
    handle.stop();
    running.await.unwrap().unwrap();
}

/// What a processor does at the end of its shard.
#[derive(Debug, Clone, Copy)]
enum AtEnd {
    LeavesItToTheWorker,
    /// Whatever comes of it.
    Checkpoints,
    Refuses,
    /// By a number that no record has.
    AsksForMore,
}

/// Counts how often it is told of the end, at which a write of the table has a fault.
#[derive(Clone)]
struct Ending {
    at_end: AtEnd,
    fault: Option<Fault>,
    table: Table,
    told: Arc<AtomicUsize>,
}

#[async_trait]
impl RecordProcessor for Ending {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.told.fetch_add(1, Ordering::Relaxed);
        if let Some(fault) = self.fault {
            self.table.next(Call::Write, fault);
        }
        match self.at_end {
            AtEnd::LeavesItToTheWorker => Ok(()),
            AtEnd::Checkpoints => {
                drop(checkpointer.checkpoint().await);
                Ok(())
            }
            AtEnd::Refuses => Err("what it is written to is away".into()),
            AtEnd::AsksForMore => {
                let sequence = "9".repeat(60).parse().unwrap();
                checkpointer.checkpoint_at(&RecordNumber { sequence, sub_sequence: 0 }).await?;
                Ok(())
            }
        }
    }
}

/// A processor's answer that it is done with the shard is taken once, whatever becomes of the
/// checkpoint.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_shard_is_told_once_although_its_checkpoint_is_not_answered() {
    for (at_end, checkpoints) in [
        (AtEnd::LeavesItToTheWorker, Checkpoints::Every(Duration::from_hours(1))),
        (AtEnd::Checkpoints, Checkpoints::ByProcessor),
    ] {
        for fault in [Fault::LoseReply, Fault::Fail, Fault::ApplyLate(Duration::from_millis(700))] {
            let (table, stream) = (table(), stream());
            let told = Arc::new(AtomicUsize::new(0));
            let (faulty, tells) = (table.clone(), Arc::clone(&told));
            let ending = Ending { at_end, fault: Some(fault), table: faulty, told: tells };
            let worker = worker(&table, &stream, move |_: &ShardContext| ending.clone());
            let worker = worker.with_checkpoints(checkpoints).build().unwrap();
            let handle = worker.handle();
            let running = tokio::spawn(worker.run());
            let shard = stream.open_shards()[0].id.clone();
            stream.split(&shard, 1 << 127).unwrap();
            stream.put_all([("a", "4"), ("b", "5")]);

            until("all is read", IN_THE_END, || handle.status().counters.records == 5).await;

            assert_eq!(told.load(Ordering::Relaxed), 1, "{at_end:?}, {fault:?}");
            assert_eq!(checkpoint(&table).await, "SHARD_END");
            assert_eq!(handle.status().counters.ended, 1);
            handle.stop();
            running.await.unwrap().unwrap();
        }
    }
}

/// Has a shard end whose processor does not checkpoint that.
async fn until_the_end_is_told_again(
    at_end: AtEnd,
    table: &Table,
    stream: &SimStream,
) -> (WorkerHandle, JoinHandle<Result<(), WorkerError>>) {
    let told = Arc::new(AtomicUsize::new(0));
    let (faulty, tells) = (table.clone(), Arc::clone(&told));
    let ending = Ending { at_end, fault: None, table: faulty, told: tells };
    let worker = worker(table, stream, move |_: &ShardContext| ending.clone()).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    let shard = stream.open_shards()[0].id.clone();
    stream.split(&shard, 1 << 127).unwrap();
    until("the end is told", IN_THE_END, || told.load(Ordering::Relaxed) > 1).await;
    (handle, running)
}

/// Its default last words checkpoint all that was delivered: that is not the end.
#[tokio::test(start_paused = true)]
async fn an_end_that_its_processor_refuses_is_not_checkpointed_when_the_worker_stops() {
    let (table, stream) = (table(), stream());

    let (handle, running) = until_the_end_is_told_again(AtEnd::Refuses, &table, &stream).await;
    handle.stop();
    running.await.unwrap().unwrap();

    let last = stream.everything_put().pop().unwrap().record.sequence;
    assert_eq!(checkpoint(&table).await, last.as_str());
}

/// Whoever had its shard then would begin after records that nobody has.
#[tokio::test(start_paused = true)]
async fn at_the_end_of_a_shard_no_number_beyond_its_last_record_is_checkpointed() {
    let (table, stream) = (table(), stream());

    let (_, running) = until_the_end_is_told_again(AtEnd::AsksForMore, &table, &stream).await;

    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON");
    running.abort();
}
