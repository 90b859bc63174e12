//! Checkpointers that outlive their processors, and checkpoints that get no answer.

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

fn stream() -> SimStream {
    let stream = SimStream::new(1);
    stream.put_all([("a", "1"), ("b", "2"), ("c", "3")]);
    stream
}

#[derive(Debug, Clone, Copy)]
enum End {
    Panics,
    Hangs,
    StopsShard,
    StopsWorker,
}

/// The test keeps the checkpointer of this processor.
struct LeavesCheckpointer {
    end: Arc<Mutex<Option<End>>>,
    left: Arc<Mutex<Vec<Checkpointer>>>,
}

#[async_trait]
impl RecordProcessor for LeavesCheckpointer {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.left.lock().unwrap().push(checkpointer.clone());
        let end = self.end.lock().unwrap().take();
        assert!(!matches!(end, Some(End::Panics)), "injected by the test");
        match end {
            Some(End::Hangs) => std::future::pending().await,
            Some(End::StopsShard) => Outcome::StopShard("not here".into()),
            Some(End::StopsWorker) => Outcome::StopWorker("out of memory".into()),
            Some(End::Panics) | None => Outcome::Continue,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn checkpointer_ends_with_its_processor() {
    for end in [End::Panics, End::Hangs, End::StopsShard, End::StopsWorker] {
        let (table, stream) = (table(), stream());
        let ends = Arc::new(Mutex::new(Some(end)));
        let left: Arc<Mutex<Vec<Checkpointer>>> = Arc::default();
        let leaves = Arc::clone(&left);
        let factory = move |_: &ShardContext| LeavesCheckpointer {
            end: Arc::clone(&ends),
            left: Arc::clone(&leaves),
        };
        let worker = worker(&table, &stream, factory).with_batch_limit(Duration::from_secs(10));
        let running = tokio::spawn(worker.build().unwrap().run());
        let is_over = || left.lock().unwrap().len() == 2 || running.is_finished();

        until("another processor has the batch, or the worker has ended", IN_THE_END, is_over)
            .await;

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

struct Stuck;

#[async_trait]
impl RecordProcessor for Stuck {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Retry(Duration::from_secs(1))
    }
}

#[tokio::test(start_paused = true)]
async fn failed_batch_is_not_checkpointed_by_worker() {
    let (table, stream) = (table(), stream());
    let worker = worker(&table, &stream, |_: &ShardContext| Stuck);
    let worker = worker.with_checkpoints(Checkpoints::Every(Duration::from_millis(1)));
    let worker = worker.build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    until("the batch is delivered again", IN_THE_END, || {
        handle.status().counters.failed_batches > 3
    })
    .await;

    handle.stop();
    running.await.unwrap().unwrap();

    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON");
}

/// The first processor leaves a checkpoint pending and panics. The next processor gets no records.
struct PendingThenPanics {
    is_first: bool,
    table: Table,
    started_at: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl RecordProcessor for PendingThenPanics {
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        self.started_at.lock().unwrap().push(shard.position.to_string());
        Ok(())
    }

    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if self.is_first {
            self.table.every(Call::Write, Fault::Fail);
            let pending = checkpointer.checkpoint().await.unwrap();
            assert!(!matches!(pending, Checkpointed::Pending(_)), "this panic is part of the test");
        }
        Outcome::Retry(Duration::from_secs(1))
    }
}

/// The first processor has processed all records up to the pending checkpoint.
#[tokio::test(start_paused = true)]
async fn processor_after_panic_starts_after_pending_checkpoint() {
    let (table, stream) = (table(), stream());
    let last = stream.everything_put().pop().unwrap().record.sequence;
    let (started_at, faulty) = (Arc::<Mutex<Vec<String>>>::default(), table.clone());
    let starts = Arc::clone(&started_at);
    let factory = move |_: &ShardContext| PendingThenPanics {
        is_first: starts.lock().unwrap().is_empty(),
        table: faulty.clone(),
        started_at: Arc::clone(&starts),
    };
    let worker = worker(&table, &stream, factory).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    until("the next processor starts", IN_THE_END, || started_at.lock().unwrap().len() == 2).await;

    sleep(Duration::from_secs(20)).await;
    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON", "all writes fail");
    table.heal();
    sleep(SOON).await;

    assert_eq!(*started_at.lock().unwrap(), ["TRIM_HORIZON", last.as_str()]);
    assert_eq!(checkpoint(&table).await, last.as_str());
    handle.stop();
    running.await.unwrap().unwrap();
}

struct HangingCheckpoint(Table);

#[async_trait]
impl RecordProcessor for HangingCheckpoint {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.0.next(Call::Write, Fault::Hang);
        let checkpointer = checkpointer.clone();
        let checkpoint = tokio::spawn(async move { checkpointer.checkpoint().await });
        tokio::task::yield_now().await;
        assert!(checkpoint.is_finished(), "injected by the test");
        Outcome::Continue
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_checkpoint_does_not_delay_lease_loss() {
    let (table, stream) = (table(), stream());
    let faulty = table.clone();
    let factory = move |_: &ShardContext| HangingCheckpoint(faulty.clone());
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
async fn factory_that_panics_is_called_again() {
    let (table, stream) = (table(), stream());
    let calls = AtomicUsize::new(0);
    let factory = move |_: &ShardContext| {
        assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "injected by the test");
        LeavesCheckpointer { end: Arc::default(), left: Arc::default() }
    };
    let worker = worker(&table, &stream, factory).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());

    until("all is processed", IN_THE_END, || handle.status().counters.records == 3).await;

    assert_eq!(handle.status().counters.restarts, 1, "under the same lease");
    handle.stop();
    running.await.unwrap().unwrap();
}

#[derive(Debug, Clone, Copy)]
enum AtEnd {
    LeavesToWorker,
    Checkpoints,
    Refuses,
    ExceedsLastRecord,
}

/// Each call of `shard_ended` injects a fault into the next write.
#[derive(Clone)]
struct CountsEnds {
    at_end: AtEnd,
    fault: Option<Fault>,
    table: Table,
    calls: Arc<AtomicUsize>,
}

#[async_trait]
impl RecordProcessor for CountsEnds {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(fault) = self.fault {
            self.table.next(Call::Write, fault);
        }
        match self.at_end {
            AtEnd::LeavesToWorker => Ok(()),
            AtEnd::Checkpoints => {
                drop(checkpointer.checkpoint().await);
                Ok(())
            }
            AtEnd::Refuses => Err("the destination is unavailable".into()),
            AtEnd::ExceedsLastRecord => {
                let sequence = "9".repeat(60).parse().unwrap();
                checkpointer.checkpoint_at(&RecordNumber { sequence, sub_sequence: 0 }).await?;
                Ok(())
            }
        }
    }
}

/// If a processor has accepted the end, only the checkpoint is retried.
#[tokio::test(start_paused = true)]
async fn end_is_reported_once_although_its_checkpoint_fails() {
    for (at_end, checkpoints) in [
        (AtEnd::LeavesToWorker, Checkpoints::Every(Duration::from_hours(1))),
        (AtEnd::Checkpoints, Checkpoints::ByProcessor),
    ] {
        for fault in [Fault::LoseReply, Fault::Fail, Fault::ApplyLate(Duration::from_millis(700))] {
            let (table, stream) = (table(), stream());
            let calls = Arc::new(AtomicUsize::new(0));
            let (faulty, counted) = (table.clone(), Arc::clone(&calls));
            let ending = CountsEnds { at_end, fault: Some(fault), table: faulty, calls: counted };
            let worker = worker(&table, &stream, move |_: &ShardContext| ending.clone());
            let worker = worker.with_checkpoints(checkpoints).build().unwrap();
            let handle = worker.handle();
            let running = tokio::spawn(worker.run());
            let shard = stream.open_shards()[0].id.clone();
            stream.split(&shard, 1 << 127).unwrap();
            stream.put_all([("a", "4"), ("b", "5")]);

            until("all is read", IN_THE_END, || handle.status().counters.records == 5).await;

            assert_eq!(calls.load(Ordering::Relaxed), 1, "{at_end:?}, {fault:?}");
            assert_eq!(checkpoint(&table).await, "SHARD_END");
            assert_eq!(handle.status().counters.ended, 1);
            handle.stop();
            running.await.unwrap().unwrap();
        }
    }
}

async fn until_end_is_reported_again(
    at_end: AtEnd,
    table: &Table,
    stream: &SimStream,
) -> (WorkerHandle, JoinHandle<Result<(), WorkerError>>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let (faulty, counted) = (table.clone(), Arc::clone(&calls));
    let ending = CountsEnds { at_end, fault: None, table: faulty, calls: counted };
    let worker = worker(table, stream, move |_: &ShardContext| ending.clone()).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    let shard = stream.open_shards()[0].id.clone();
    stream.split(&shard, 1 << 127).unwrap();
    until("the end is reported again", IN_THE_END, || calls.load(Ordering::Relaxed) > 1).await;
    (handle, running)
}

/// The default `shutdown_requested` checkpoints the delivered records, not the end.
#[tokio::test(start_paused = true)]
async fn refused_end_is_not_checkpointed_at_shutdown() {
    let (table, stream) = (table(), stream());

    let (handle, running) = until_end_is_reported_again(AtEnd::Refuses, &table, &stream).await;
    handle.stop();
    running.await.unwrap().unwrap();

    let last = stream.everything_put().pop().unwrap().record.sequence;
    assert_eq!(checkpoint(&table).await, last.as_str());
}

/// Without this check, the next reader would start at a record that does not exist.
#[tokio::test(start_paused = true)]
async fn checkpoint_beyond_last_record_is_rejected_at_end() {
    let (table, stream) = (table(), stream());

    let (_, running) = until_end_is_reported_again(AtEnd::ExceedsLastRecord, &table, &stream).await;

    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON");
    running.abort();
}
