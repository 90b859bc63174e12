//! Tests checkpoints inside a batch.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault};
use lease_kinesis::{
    Batch, CheckpointError, Checkpointed, Checkpointer, NeedsRestart, Outcome, ProcessorError,
    RecordNumber, RecordProcessor, ShardContext, SimStream,
};
use tokio::time::sleep;

use crate::setting::{IN_THE_END, SOON, checkpoint, table, until, worker};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Fails,
    Retries,
    Restarts,
}

/// Checkpoints each third record, and fails `times` times at the fifth record.
#[derive(Clone)]
struct EveryThird {
    failure: Failure,
    times: Arc<Mutex<usize>>,
    calls: Arc<Mutex<Vec<(usize, usize)>>>,
    numbers: Arc<Mutex<Vec<RecordNumber>>>,
}

impl EveryThird {
    fn new(failure: Failure, times: usize) -> Self {
        let times = Arc::new(Mutex::new(times));
        Self { failure, times, calls: Arc::default(), numbers: Arc::default() }
    }

    fn calls(&self) -> Vec<(usize, usize)> {
        self.calls.lock().unwrap().clone()
    }

    fn is_to_fail(&self) -> bool {
        let mut times = self.times.lock().unwrap();
        let fails = *times > 0;
        *times = times.saturating_sub(1);
        fails
    }
}

#[async_trait]
impl RecordProcessor for EveryThird {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let index = |record: &lease_kinesis::Record| -> usize {
            str::from_utf8(&record.data).unwrap().parse().unwrap()
        };
        let first = index(&batch.records[0]);
        self.calls.lock().unwrap().push((first, batch.records.len()));
        for record in &batch.records {
            let index = index(record);
            self.numbers.lock().unwrap().push(record.number.clone());
            if index == 4 && self.is_to_fail() {
                return match self.failure {
                    Failure::Fails => Outcome::Failed("database away".into()),
                    Failure::Retries => Outcome::Retry(Duration::from_secs(1)),
                    Failure::Restarts => Outcome::Failed(NeedsRestart::new("no memory").into()),
                };
            }
            if index % 3 == 2 {
                checkpointer.checkpoint_at(&record.number).await.unwrap();
            }
        }
        checkpointer.checkpoint().await.into()
    }
}

fn stream() -> SimStream {
    let stream = SimStream::new(1);
    for number in 0..10 {
        stream.put("key", number.to_string());
    }
    stream
}

#[tokio::test(start_paused = true)]
async fn only_records_after_checkpoint_are_delivered_again() {
    for failure in [Failure::Fails, Failure::Retries, Failure::Restarts] {
        for fault in [None, Some(Fault::Fail)] {
            let (table, stream, processor) = (table(), stream(), EveryThird::new(failure, 3));
            let processors = processor.clone();
            let worker = worker(&table, &stream, move |_: &ShardContext| processors.clone());
            let worker = worker.build().unwrap();
            let handle = worker.handle();
            tokio::spawn(worker.run());
            if let Some(fault) = fault {
                until("a shard is obtained", SOON, || handle.status().counters.obtained == 1).await;
                table.every(Call::Write, fault);
            }
            until("all is processed", IN_THE_END, || processor.calls().len() == 4).await;
            table.heal();
            sleep(SOON).await;

            let expected = [(0, 10), (3, 7), (3, 7), (3, 7)];
            assert_eq!(processor.calls(), expected, "{failure:?}, {fault:?}");
            let last = stream.everything_put().pop().unwrap().record.sequence;
            assert_eq!(checkpoint(&table).await, last.as_str());
            let counters = handle.status().counters;
            assert_eq!((counters.records, counters.replayed), (10, 21), "{failure:?}, {fault:?}");
        }
    }
}

struct FailsAfterwards(Arc<Mutex<Vec<usize>>>);

#[async_trait]
impl RecordProcessor for FailsAfterwards {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.0.lock().unwrap().push(batch.records.len());
        checkpointer.checkpoint().await.unwrap();
        Outcome::Failed("its metrics were not sent".into())
    }
}

#[tokio::test(start_paused = true)]
async fn failure_after_checkpoint_of_batch_repeats_no_record() {
    let (table, stream, calls) = (table(), stream(), Arc::<Mutex<Vec<usize>>>::default());
    let called = Arc::clone(&calls);
    let factory = move |_: &ShardContext| FailsAfterwards(Arc::clone(&called));
    let worker = worker(&table, &stream, factory).with_max_records(5).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    until("all is processed", SOON, || handle.status().counters.records == 10).await;
    sleep(SOON).await;

    assert_eq!(*calls.lock().unwrap(), [5, 5]);
}

/// Checkpoints its last record, then its first record, then a record that does not exist.
struct GoesBack(Arc<Mutex<Vec<Result<Checkpointed, CheckpointError>>>>);

#[async_trait]
impl RecordProcessor for GoesBack {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let none = RecordNumber::new("9".repeat(60).parse().unwrap());
        let (first, last) = (&batch.records[0].number, &batch.records[9].number);
        for number in [last, first, &none] {
            let answer = checkpointer.checkpoint_at(number).await;
            self.0.lock().unwrap().push(answer);
        }
        Outcome::Continue
    }
}

#[tokio::test(start_paused = true)]
async fn checkpoint_before_the_last_one_is_ignored() {
    let (table, stream) = (table(), stream());
    let answers: Arc<Mutex<Vec<Result<Checkpointed, CheckpointError>>>> = Arc::default();
    let answered = Arc::clone(&answers);
    let factory = move |_: &ShardContext| GoesBack(Arc::clone(&answered));
    let worker = worker(&table, &stream, factory).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    until("all is processed", SOON, || handle.status().counters.records == 10).await;

    let answers = std::mem::take(&mut *answers.lock().unwrap());
    let stored = |answer: &Result<_, _>| matches!(answer, Ok(Checkpointed::Stored));
    assert!(stored(&answers[0]) && stored(&answers[1]), "{answers:?}");
    assert!(matches!(answers[2], Err(CheckpointError::OutOfRange { .. })), "{answers:?}");
    let last = stream.everything_put().pop().unwrap().record.sequence;
    assert_eq!(checkpoint(&table).await, last.as_str());
}

struct Fails(Arc<Mutex<usize>>);

#[async_trait]
impl RecordProcessor for Fails {
    async fn initialize(&mut self, _: &ShardContext) -> Result<(), ProcessorError> {
        *self.0.lock().unwrap() += 1;
        Ok(())
    }

    async fn process_records(&mut self, _: &Batch, _: &Checkpointer) -> Outcome {
        Outcome::Failed("database away".into())
    }
}

#[tokio::test(start_paused = true)]
async fn shard_is_released_after_too_many_failures() {
    for (most, minutes) in [(Some(3), 0), (None, 22)] {
        let (table, stream, started) = (table(), stream(), Arc::<Mutex<usize>>::default());
        let starts = Arc::clone(&started);
        let worker = worker(&table, &stream, move |_: &ShardContext| Fails(Arc::clone(&starts)));
        let worker = match most {
            Some(most) => worker.with_max_failures(most),
            None => worker,
        };
        let worker = worker.build().unwrap();
        let handle = worker.handle();
        tokio::spawn(worker.run());
        sleep(Duration::from_mins(minutes)).await;
        assert!(handle.status().counters.failed_batches < 30);
        until("another processor starts", IN_THE_END, || *started.lock().unwrap() == 2).await;

        let counters = handle.status().counters;
        assert_eq!((counters.obtained, counters.restarts), (2, 0));
        assert!((3..=4).contains(&counters.failed_batches) || most.is_none());
        assert!((30..=31).contains(&counters.failed_batches) || most.is_some());
    }
}
