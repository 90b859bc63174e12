//! Checkpoints inside a batch: what follows the last of them is delivered again after a failure, and
//! nothing else.

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

/// What a processor answers after the record at which it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Fails,
    Retries,
    Restarts,
}

/// Checkpoints every third record of its first batch, and fails at the fifth, the first `times`.
#[derive(Clone)]
struct EveryThird {
    answer: Answer,
    times: Arc<Mutex<usize>>,
    /// How many records each call was given, by their place in the stream.
    calls: Arc<Mutex<Vec<(usize, usize)>>>,
    numbers: Arc<Mutex<Vec<RecordNumber>>>,
}

impl EveryThird {
    fn new(answer: Answer, times: usize) -> Self {
        let times = Arc::new(Mutex::new(times));
        Self { answer, times, calls: Arc::default(), numbers: Arc::default() }
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
        let place = |record: &lease_kinesis::Record| -> usize {
            str::from_utf8(&record.data).unwrap().parse().unwrap()
        };
        let first = place(&batch.records[0]);
        self.calls.lock().unwrap().push((first, batch.records.len()));
        for record in &batch.records {
            let place = place(record);
            self.numbers.lock().unwrap().push(record.number.clone());
            if place == 4 && self.is_to_fail() {
                return match self.answer {
                    Answer::Fails => Outcome::Failed("database away".into()),
                    Answer::Retries => Outcome::Retry(Duration::from_secs(1)),
                    Answer::Restarts => Outcome::Failed(NeedsRestart::new("no memory").into()),
                };
            }
            if place % 3 == 2 {
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
async fn records_after_the_checkpoint_alone_are_delivered_again() {
    for answer in [Answer::Fails, Answer::Retries, Answer::Restarts] {
        for fault in [None, Some(Fault::Fail)] {
            let (table, stream, processor) = (table(), stream(), EveryThird::new(answer, 3));
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
            assert_eq!(processor.calls(), expected, "{answer:?}, {fault:?}");
            let last = stream.everything_put().pop().unwrap().record.sequence;
            assert_eq!(checkpoint(&table).await, last.as_str());
            let counters = handle.status().counters;
            assert_eq!((counters.records, counters.replayed), (10, 21), "{answer:?}, {fault:?}");
        }
    }
}

/// Checkpoints its whole batch, and fails afterwards.
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
async fn failure_after_a_checkpoint_of_the_whole_batch_repeats_nothing() {
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

/// Checkpoints its last record, then its first, then one that no stream has.
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
async fn checkpoint_before_the_kept_one_is_a_no_op() {
    let (table, stream) = (table(), stream());
    let answers: Arc<Mutex<Vec<Result<Checkpointed, CheckpointError>>>> = Arc::default();
    let answered = Arc::clone(&answers);
    let factory = move |_: &ShardContext| GoesBack(Arc::clone(&answered));
    let worker = worker(&table, &stream, factory).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    until("all is processed", SOON, || handle.status().counters.records == 10).await;

    let answers = std::mem::take(&mut *answers.lock().unwrap());
    let kept = |answer: &Result<_, _>| matches!(answer, Ok(Checkpointed::Kept));
    assert!(kept(&answers[0]) && kept(&answers[1]), "{answers:?}");
    assert!(matches!(answers[2], Err(CheckpointError::OutOfRange { .. })), "{answers:?}");
    let last = stream.everything_put().pop().unwrap().record.sequence;
    assert_eq!(checkpoint(&table).await, last.as_str());
}

/// Fails at every batch.
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
async fn batch_that_fails_too_often_gives_its_shard_up() {
    for (most, minutes) in [(Some(3), 0), (None, 22)] {
        let (table, stream, begun) = (table(), stream(), Arc::<Mutex<usize>>::default());
        let begins = Arc::clone(&begun);
        let worker = worker(&table, &stream, move |_: &ShardContext| Fails(Arc::clone(&begins)));
        let worker = match most {
            Some(most) => worker.with_max_failures(most),
            None => worker,
        };
        let worker = worker.build().unwrap();
        let handle = worker.handle();
        tokio::spawn(worker.run());
        sleep(Duration::from_mins(minutes)).await;
        assert!(handle.status().counters.failed_batches < 30);
        until("another processor begins", IN_THE_END, || *begun.lock().unwrap() == 2).await;

        let counters = handle.status().counters;
        assert_eq!((counters.obtained, counters.restarts), (2, 0));
        assert!((3..=4).contains(&counters.failed_batches) || most.is_none());
        assert!((30..=31).contains(&counters.failed_batches) || most.is_some());
    }
}
