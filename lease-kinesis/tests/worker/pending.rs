//! Pending checkpoints: the store fails for a while, and the worker writes the checkpoints later.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault};
use lease_kinesis::{
    Batch, Checkpointer, NeedsRestart, Outcome, RecordProcessor, ShardContext, SimStream,
};
use tokio::time::sleep;

use crate::setting::{IN_THE_END, SOON, checkpoint, evict, table, until, worker};

#[derive(Clone, Default)]
struct Processed(Arc<Mutex<Vec<String>>>);

impl Processed {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn distinct(&self) -> usize {
        self.0.lock().unwrap().iter().collect::<BTreeSet<_>>().len()
    }

    fn note(&self, batch: &Batch) {
        let records = batch.records.iter().map(|record| record.number.to_string());
        self.0.lock().unwrap().extend(records);
    }
}

struct Checkpoints(Processed);

#[async_trait]
impl RecordProcessor for Checkpoints {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.0.note(batch);
        checkpointer.checkpoint().await.into()
    }
}

fn put(stream: &SimStream, records: usize) {
    for number in 0..records {
        stream.put(&format!("key-{}", number % 50), number.to_string());
    }
}

fn last_of(stream: &SimStream) -> String {
    stream.everything_put().pop().unwrap().record.sequence.to_string()
}

#[tokio::test(start_paused = true)]
async fn throttled_checkpoint_writes_repeat_no_record() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang, Fault::HangReply] {
        for seconds in [1, 10, 60, 600] {
            let (table, stream, processed) = (table(), SimStream::new(1), Processed::default());
            let processors = processed.clone();
            let factory = move |_: &ShardContext| Checkpoints(processors.clone());
            let worker = worker(&table, &stream, factory).with_max_records(100).build().unwrap();
            let handle = worker.handle();
            let running = tokio::spawn(worker.run());
            until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
            sleep(Duration::from_secs(1)).await;

            table.every(Call::Write, fault);
            put(&stream, 500);
            sleep(Duration::from_secs(seconds)).await;
            put(&stream, 500);
            sleep(Duration::from_millis(300)).await;
            table.heal();

            until("all is processed", IN_THE_END, || processed.distinct() == 1_000).await;
            sleep(Duration::from_secs(10)).await;
            assert_eq!(processed.count(), 1_000, "{fault:?} for {seconds} s");
            assert_eq!(checkpoint(&table).await, last_of(&stream), "{fault:?} for {seconds} s");
            assert_eq!(handle.status().counters.lost, 0);
            handle.stop();
            running.await.unwrap().unwrap();
        }
    }
}

/// Checkpoints its first batch, and retries each later batch for ever.
#[derive(Clone, Default)]
struct ChecksFirstBatch {
    is_started: Arc<AtomicBool>,
    processed: Processed,
}

#[async_trait]
impl RecordProcessor for ChecksFirstBatch {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.processed.note(batch);
        if self.is_started.swap(true, Ordering::SeqCst) {
            return Outcome::Retry(Duration::from_secs(1));
        }
        checkpointer.checkpoint().await.into()
    }
}

#[tokio::test(start_paused = true)]
async fn pending_checkpoint_is_written_without_further_records() {
    let (table, stream, processor) = (table(), SimStream::new(1), ChecksFirstBatch::default());
    let processors = processor.clone();
    let worker = worker(&table, &stream, move |_: &ShardContext| processors.clone());
    let worker = worker.build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    table.every(Call::Write, Fault::Fail);
    put(&stream, 10);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON");

    table.heal();
    sleep(Duration::from_secs(6)).await;

    assert_eq!(checkpoint(&table).await, last_of(&stream));
    handle.stop();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn throttled_store_gets_one_checkpoint_write_per_pause() {
    let (table, stream, processed) = (table(), SimStream::new(1), Processed::default());
    let processors = processed.clone();
    let factory = move |_: &ShardContext| Checkpoints(processors.clone());
    let worker = worker(&table, &stream, factory).with_max_records(1).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    // A worker under a session writes its own row until it forgets its notices.
    sleep(Duration::from_mins(1)).await;
    let before = table.calls(Call::Write);
    table.every(Call::Write, Fault::Fail);

    put(&stream, 1_000);
    sleep(Duration::from_secs(100)).await;

    assert!(processed.count() >= 400, "{} batches", processed.count());
    let writes = table.calls(Call::Write) - before;
    assert!((10..=25).contains(&writes), "{writes} writes");
}

#[tokio::test(start_paused = true)]
async fn pending_checkpoint_is_dropped_with_lost_lease() {
    let (table, stream, processor) = (table(), SimStream::new(1), ChecksFirstBatch::default());
    let processors = processor.clone();
    let worker = worker(&table, &stream, move |_: &ShardContext| processors.clone());
    let worker = worker.with_name("a".parse().unwrap()).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    // Writes arrive late from now on. The last write reaches the store after the next grant.
    table.every(Call::Write, Fault::ApplyLate(Duration::from_secs(25)));
    put(&stream, 10);
    until("the checkpoint is pending", SOON, || processor.processed.count() == 10).await;

    evict(&table, "a").await;
    until("the lease is lost", SOON, || handle.status().counters.lost == 1).await;
    table.heal();
    let again = || processor.processed.count() > 10;
    until("the records are delivered again", IN_THE_END, again).await;
    sleep(Duration::from_mins(1)).await;

    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON");
}

#[tokio::test(start_paused = true)]
async fn pending_checkpoint_is_written_before_end_of_shard() {
    let (table, stream, processed) = (table(), SimStream::new(1), Processed::default());
    let processors = processed.clone();
    let worker = worker(&table, &stream, move |_: &ShardContext| Checkpoints(processors.clone()));
    let worker = worker.build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    let shard = stream.open_shards()[0].id.clone();
    put(&stream, 10);
    sleep(Duration::from_secs(2)).await;
    stream.split(&shard, 1 << 127).unwrap();
    // The worker can now write neither the rows of the children nor the end of the parent.
    table.every(Call::Write, Fault::Fail);
    put(&stream, 10);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(processed.count(), 10, "the children wait for the end of their parent");

    table.heal();

    until("all is processed", IN_THE_END, || processed.count() == 20).await;
    assert_eq!(processed.distinct(), 20);
    assert_eq!(checkpoint(&table).await, "SHARD_END");
}

#[tokio::test(start_paused = true)]
async fn pending_checkpoint_is_written_at_shutdown() {
    let (table, stream, processed) = (table(), SimStream::new(1), Processed::default());
    let factory = |processed: &Processed| {
        let processors = processed.clone();
        move |_: &ShardContext| Checkpoints(processors.clone())
    };
    let first = worker(&table, &stream, factory(&processed));
    let first = first.with_grace(Duration::from_mins(3)).build().unwrap();
    let handle = first.handle();
    let running = tokio::spawn(first.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    table.every(Call::Write, Fault::Fail);
    put(&stream, 10);
    until("the records are processed", SOON, || processed.count() == 10).await;
    handle.stop();
    sleep(Duration::from_secs(70)).await;
    assert!(!running.is_finished(), "a checkpoint is pending");

    table.heal();
    sleep(Duration::from_secs(6)).await;
    assert!(running.is_finished(), "the checkpoint is written within 5 s");
    running.await.unwrap().unwrap();

    assert_eq!(checkpoint(&table).await, last_of(&stream));
    tokio::spawn(worker(&table, &stream, factory(&processed)).build().unwrap().run());
    sleep(Duration::from_mins(1)).await;
    assert_eq!(processed.count(), 10);
}

struct NeedsReplacement;

#[async_trait]
impl RecordProcessor for NeedsReplacement {
    async fn process_records(&mut self, _: &Batch, checkpointer: &Checkpointer) -> Outcome {
        checkpointer.checkpoint().await.unwrap();
        Outcome::Failed(NeedsRestart::new("no memory").into())
    }
}

#[tokio::test(start_paused = true)]
async fn pending_checkpoint_is_written_before_restart() {
    let (table, stream) = (table(), SimStream::new(1));
    let pause = Duration::from_mins(1);
    let worker = worker(&table, &stream, |_: &ShardContext| NeedsReplacement);
    let worker = worker.with_backoff(pause, pause).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    table.every(Call::Write, Fault::Fail);
    put(&stream, 10);
    until("the processor fails", SOON, || handle.status().counters.restarts == 1).await;
    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON");

    table.heal();
    sleep(Duration::from_secs(6)).await;

    assert_eq!(checkpoint(&table).await, last_of(&stream));
}
