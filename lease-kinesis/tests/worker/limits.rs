//! Streams that do not answer, and processors that hang or stop outside of a batch.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault};
use lease_kinesis::{
    Batch, Checkpointer, Checkpoints, Fetched, Outcome, ProcessorError, ReadFrom, RecordProcessor,
    Shard, ShardContext, ShardId, ShardIterator, SimStream, Source, SourceError, SourceErrorKind,
    WorkerBuilder,
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::setting::{self, IN_THE_END, SOON, Table, table, until};

#[derive(Debug, Clone)]
struct FaultyStream {
    stream: SimStream,
    lists_hang: Arc<AtomicBool>,
    reads_fail: Arc<AtomicBool>,
}

impl FaultyStream {
    fn new(shards: u16) -> Self {
        let stream = SimStream::new(shards);
        Self { stream, lists_hang: Arc::default(), reads_fail: Arc::default() }
    }
}

#[async_trait]
impl Source for FaultyStream {
    async fn shards(&self) -> Result<Vec<Shard>, SourceError> {
        if self.lists_hang.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.stream.shards().await
    }

    async fn iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, SourceError> {
        self.stream.iterator(shard, from).await
    }

    async fn fetch(&self, iterator: &ShardIterator, most: u16) -> Result<Fetched, SourceError> {
        if self.reads_fail.load(Ordering::SeqCst) {
            return Err(SourceError::new(SourceErrorKind::Unavailable, "injected by the test"));
        }
        self.stream.fetch(iterator, most).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misbehavior {
    Nothing,
    HangsAtStart,
    HangsAtTheEnd,
    StopsShard,
    StopsWorker,
    Panics,
}

#[derive(Debug, Clone)]
struct Processors {
    does: Arc<Mutex<Misbehavior>>,
    started_at: Arc<Mutex<Vec<String>>>,
    tokens: Arc<Mutex<Vec<CancellationToken>>>,
    batches: Arc<AtomicUsize>,
    asks: bool,
}

impl Processors {
    fn with(does: Misbehavior) -> Self {
        Self {
            does: Arc::new(Mutex::new(does)),
            started_at: Arc::default(),
            tokens: Arc::default(),
            batches: Arc::default(),
            asks: false,
        }
    }

    fn started(&self) -> usize {
        self.started_at.lock().unwrap().len()
    }

    fn does(&self, what: Misbehavior) -> bool {
        let mut does = self.does.lock().unwrap();
        let is_it = *does == what;
        if is_it {
            *does = Misbehavior::Nothing;
        }
        is_it
    }
}

#[async_trait]
impl RecordProcessor for Processors {
    async fn initialize(&mut self, context: &ShardContext) -> Result<(), ProcessorError> {
        self.started_at.lock().unwrap().push(context.position.to_string());
        self.tokens.lock().unwrap().push(context.cancellation.clone());
        if self.does(Misbehavior::HangsAtStart) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let number = self.batches.fetch_add(1, Ordering::SeqCst);
        assert!(!self.does(Misbehavior::Panics), "injected by the test");
        if number == 0 {
            if self.asks {
                drop(checkpointer.checkpoint().await);
            }
            return Outcome::Continue;
        }
        if self.does(Misbehavior::StopsShard) {
            return Outcome::StopShard("injected by the test".into());
        }
        if self.does(Misbehavior::StopsWorker) {
            return Outcome::StopWorker("injected by the test".into());
        }
        Outcome::Continue
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        if self.does(Misbehavior::HangsAtTheEnd) {
            std::future::pending::<()>().await;
        }
        checkpointer.checkpoint().await?;
        Ok(())
    }
}

fn worker(
    name: &str,
    table: &Table,
    source: &FaultyStream,
    processors: &Processors,
) -> WorkerBuilder {
    let processors = processors.clone();
    let factory = move |_: &ShardContext| processors.clone();
    setting::worker(table, source, factory).with_name(name.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn worker_stops_while_list_of_shards_hangs() {
    let (table, source, processors) =
        (table(), FaultyStream::new(1), Processors::with(Misbehavior::Nothing));
    let worker = worker("a", &table, &source, &processors);
    let worker = worker.with_sync_interval(Duration::from_secs(1)).build().unwrap();
    let handle = worker.handle();
    let run = tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    source.lists_hang.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(30)).await;

    let ticks = handle.status().counters.ticks;
    sleep(Duration::from_secs(30)).await;
    assert!(handle.status().counters.ticks > ticks, "the worker still ticks");
    handle.stop();

    assert!(timeout(Duration::from_secs(5), run).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn joining_worker_gets_its_share_while_list_hangs() {
    let (table, source, processors) =
        (table(), FaultyStream::new(4), Processors::with(Misbehavior::Nothing));
    let first = worker("a", &table, &source, &processors).build().unwrap();
    let first_handle = first.handle();
    tokio::spawn(first.run());
    until("the worker reads", SOON, || first_handle.status().shards.len() == 4).await;
    source.lists_hang.store(true, Ordering::SeqCst);

    let second = worker("b", &table, &source, &processors).build().unwrap();
    let handle = second.handle();
    tokio::spawn(second.run());

    until("each reads two", SOON, || handle.status().shards.len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_start_or_end_is_cancelled_after_limit() {
    for does in [Misbehavior::HangsAtStart, Misbehavior::HangsAtTheEnd] {
        let (table, source, processors) = (table(), FaultyStream::new(1), Processors::with(does));
        source.stream.put_all([("a", "1"), ("b", "2")]);
        let worker = worker("a", &table, &source, &processors);
        let worker = worker.with_batch_limit(Duration::from_secs(10)).build().unwrap();
        let handle = worker.handle();
        tokio::spawn(worker.run());
        until("the processor starts", SOON, || processors.started() > 0).await;
        let shard = source.stream.open_shards()[0].clone();
        source.stream.split(&shard.id, u128::MAX / 2).unwrap();

        let ended = || handle.status().counters.ended == 1;
        until("the worker reads to the end", Duration::from_mins(2), ended).await;
        assert_eq!(handle.status().counters.restarts, 1, "{does:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shard_of_hanging_start_is_handed_over_at_once() {
    let (table, source) = (table(), FaultyStream::new(1));
    let hanging = Processors::with(Misbehavior::HangsAtStart);
    let first = worker("a", &table, &source, &hanging).build().unwrap();
    let handle = first.handle();
    tokio::spawn(first.run());
    until("the processor starts", SOON, || hanging.started() == 1).await;
    let next = Processors::with(Misbehavior::Nothing);
    tokio::spawn(worker("b", &table, &source, &next).build().unwrap().run());
    sleep(Duration::from_secs(20)).await;

    handle.stop();

    until("the other worker starts", Duration::from_secs(5), || next.started() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn processed_records_are_checkpointed_before_stop() {
    for (does, asks) in [
        (Misbehavior::StopsShard, false),
        (Misbehavior::StopsWorker, false),
        (Misbehavior::StopsShard, true),
        (Misbehavior::StopsWorker, true),
    ] {
        let (table, source) = (table(), FaultyStream::new(1));
        let processors = Processors { asks, ..Processors::with(does) };
        let every = Checkpoints::Every(Duration::from_mins(10));
        let checkpoints = if asks { Checkpoints::ByProcessor } else { every };
        let builder = || {
            let worker = worker("a", &table, &source, &processors);
            worker.with_checkpoints(checkpoints).build().unwrap()
        };
        let run = tokio::spawn(builder().run());
        until("the processor starts", SOON, || processors.started() == 1).await;
        table.choose(move |call| (asks && call == Call::Write).then_some(Fault::Fail));
        source.stream.put_all([("a", "1"), ("b", "2")]);
        until("a batch is processed", SOON, || processors.batches.load(Ordering::SeqCst) == 1)
            .await;
        sleep(Duration::from_secs(1)).await;
        table.heal();

        source.stream.put_all([("a", "3")]);

        until("the processor stops", SOON, || processors.batches.load(Ordering::SeqCst) == 2).await;
        if does == Misbehavior::StopsWorker {
            assert!(run.await.unwrap().is_err());
            tokio::spawn(builder().run());
        }
        until("another processor starts", IN_THE_END, || processors.started() == 2).await;
        let started_at = processors.started_at.lock().unwrap().clone();
        assert_ne!(started_at[1], started_at[0], "{does:?}, asks {asks}");
    }
}

#[tokio::test(start_paused = true)]
async fn processor_end_cancels_its_background_work() {
    let (table, source, processors) =
        (table(), FaultyStream::new(1), Processors::with(Misbehavior::Panics));
    source.stream.put_all([("a", "1")]);
    tokio::spawn(worker("a", &table, &source, &processors).build().unwrap().run());

    until("another processor starts", SOON, || processors.started() == 2).await;

    let is_cancelled = |token: &CancellationToken| token.is_cancelled();
    let tokens = processors.tokens.lock().unwrap();
    assert_eq!(tokens.iter().map(is_cancelled).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn unreadable_stream_is_reported_as_behind() {
    let (table, source, processors) =
        (table(), FaultyStream::new(1), Processors::with(Misbehavior::Nothing));
    let worker = worker("a", &table, &source, &processors).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(handle.status().shards[0].behind, Duration::ZERO);

    source.reads_fail.store(true, Ordering::SeqCst);
    sleep(Duration::from_hours(1)).await;

    assert!(handle.status().shards[0].behind >= Duration::from_mins(59));
}

struct PanicsAtDrop;

impl Drop for PanicsAtDrop {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "injected by the test");
    }
}

#[async_trait]
impl RecordProcessor for PanicsAtDrop {
    async fn process_records(&mut self, _batch: &Batch, _: &Checkpointer) -> Outcome {
        Outcome::StopShard("injected by the test".into())
    }
}

#[tokio::test(start_paused = true)]
async fn shard_with_panicking_destructor_gets_backoff() {
    let (table, stream) = (table(), SimStream::new(1));
    stream.put_all([("a", "1")]);
    let worker = setting::worker(&table, &stream, |_: &ShardContext| PanicsAtDrop).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    sleep(Duration::from_mins(10)).await;

    let obtained = handle.status().counters.obtained;
    assert!((2..=40).contains(&obtained), "{obtained} times");
}
