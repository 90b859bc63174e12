//! Checkpoints that the store does not take for a while: the worker goes on, and writes them later.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::LeaseTable;
use lease_core::conformance::{Call, Fault};
use lease_kinesis::{Batch, Checkpointer, Outcome, RecordProcessor, ShardContext, SimStream};
use tokio::time::sleep;

use crate::setting::{IN_THE_END, SOON, checkpoint, table, until, worker};

/// All records that were processed, in order.
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

/// Ends each batch as the first example of the README does.
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

/// Checkpoints its first batch, and then waits without an answer for as long as it is given others.
#[derive(Clone, Default)]
struct ChecksFirstBatch {
    is_begun: Arc<AtomicBool>,
    processed: Processed,
}

#[async_trait]
impl RecordProcessor for ChecksFirstBatch {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.processed.note(batch);
        if self.is_begun.swap(true, Ordering::SeqCst) {
            return Outcome::Retry(Duration::from_secs(1));
        }
        checkpointer.checkpoint().await.into()
    }
}

#[tokio::test(start_paused = true)]
async fn owed_checkpoint_is_written_without_further_records() {
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

/// A store that throttles is not asked at each batch.
#[tokio::test(start_paused = true)]
async fn throttled_store_gets_one_checkpoint_write_per_pause() {
    let (table, stream, processed) = (table(), SimStream::new(1), Processed::default());
    let processors = processed.clone();
    let factory = move |_: &ShardContext| Checkpoints(processors.clone());
    let worker = worker(&table, &stream, factory).with_max_records(1).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    let before = table.calls(Call::Write);
    table.every(Call::Write, Fault::Fail);

    put(&stream, 1_000);
    sleep(Duration::from_secs(100)).await;

    assert!(processed.count() >= 400, "{} batches", processed.count());
    let writes = table.calls(Call::Write) - before;
    assert!((10..=25).contains(&writes), "{writes} writes");
}

#[tokio::test(start_paused = true)]
async fn owed_checkpoint_is_dropped_with_a_lost_lease() {
    let (table, stream, processor) = (table(), SimStream::new(1), ChecksFirstBatch::default());
    let processors = processor.clone();
    let worker = worker(&table, &stream, move |_: &ShardContext| processors.clone());
    let worker = worker.build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    // The last of these reaches the store after the next grant.
    table.every(Call::Write, Fault::ApplyLate(Duration::from_secs(25)));
    put(&stream, 10);
    until("the checkpoint is owed", SOON, || processor.processed.count() == 10).await;

    let token = handle.status().shards[0].token;
    let key = "shop/shards/shardId-000000000000".parse().unwrap();
    assert!(table.inner().evict(&key, token).await.unwrap());
    until("the lease is lost", SOON, || handle.status().counters.lost == 1).await;
    table.heal();
    let again = || processor.processed.count() > 10;
    until("the records are delivered again", IN_THE_END, again).await;
    sleep(Duration::from_mins(1)).await;

    assert_eq!(checkpoint(&table).await, "TRIM_HORIZON");
}

#[tokio::test(start_paused = true)]
async fn owed_checkpoint_is_written_before_the_end_of_its_shard() {
    let (table, stream, processed) = (table(), SimStream::new(1), Processed::default());
    let processors = processed.clone();
    let worker = worker(&table, &stream, move |_: &ShardContext| Checkpoints(processors.clone()));
    let worker = worker.build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    let shard = stream.open_shards()[0].id.clone();
    // Rows of children are made, and nothing else is written.
    put(&stream, 10);
    sleep(Duration::from_secs(2)).await;
    stream.split(&shard, 1 << 127).unwrap();
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
async fn owed_checkpoint_is_written_at_shutdown() {
    let (table, stream, processed) = (table(), SimStream::new(1), Processed::default());
    let factory = |processed: &Processed| {
        let processors = processed.clone();
        move |_: &ShardContext| Checkpoints(processors.clone())
    };
    let first = worker(&table, &stream, factory(&processed));
    let first = first.with_grace(Duration::from_mins(2)).build().unwrap();
    let handle = first.handle();
    let running = tokio::spawn(first.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    table.every(Call::Write, Fault::Fail);
    put(&stream, 10);
    until("the records are processed", SOON, || processed.count() == 10).await;
    handle.stop();
    sleep(Duration::from_mins(1)).await;
    assert!(!running.is_finished(), "the worker owes a checkpoint");

    table.heal();
    running.await.unwrap().unwrap();

    assert_eq!(checkpoint(&table).await, last_of(&stream));
    tokio::spawn(worker(&table, &stream, factory(&processed)).build().unwrap().run());
    sleep(Duration::from_mins(1)).await;
    assert_eq!(processed.count(), 10);
}
