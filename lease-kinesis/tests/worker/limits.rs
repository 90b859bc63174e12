//! What a worker is held up by: streams that do not answer, processors that hang beside their batches
//! or give up, and what is left of them.

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

/// A stream that may not answer.
#[derive(Debug, Clone)]
struct Moody {
    stream: SimStream,
    lists_hang: Arc<AtomicBool>,
    reads_fail: Arc<AtomicBool>,
}

impl Moody {
    fn new(shards: u16) -> Self {
        let stream = SimStream::new(shards);
        Self { stream, lists_hang: Arc::default(), reads_fail: Arc::default() }
    }
}

#[async_trait]
impl Source for Moody {
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
            return Err(SourceError::new(SourceErrorKind::Unavailable, "as the test wants it"));
        }
        self.stream.fetch(iterator, most).await
    }
}

/// What a processor does beside what is usual, the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Nothing,
    HangsAsItBegins,
    HangsAtTheEnd,
    StopsShard,
    StopsWorker,
    Panics,
}

/// Processors of one worker, and what became of them.
#[derive(Debug, Clone)]
struct Processors {
    does: Arc<Mutex<Does>>,
    begun_at: Arc<Mutex<Vec<String>>>,
    tokens: Arc<Mutex<Vec<CancellationToken>>>,
    batches: Arc<AtomicUsize>,
    asks: bool,
}

impl Processors {
    fn that(does: Does) -> Self {
        Self {
            does: Arc::new(Mutex::new(does)),
            begun_at: Arc::default(),
            tokens: Arc::default(),
            batches: Arc::default(),
            asks: false,
        }
    }

    fn begun(&self) -> usize {
        self.begun_at.lock().unwrap().len()
    }

    fn does(&self, what: Does) -> bool {
        let mut does = self.does.lock().unwrap();
        let is_it = *does == what;
        if is_it {
            *does = Does::Nothing;
        }
        is_it
    }
}

#[async_trait]
impl RecordProcessor for Processors {
    async fn initialize(&mut self, context: &ShardContext) -> Result<(), ProcessorError> {
        self.begun_at.lock().unwrap().push(context.position.to_string());
        self.tokens.lock().unwrap().push(context.cancellation.clone());
        if self.does(Does::HangsAsItBegins) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let number = self.batches.fetch_add(1, Ordering::SeqCst);
        assert!(!self.does(Does::Panics), "as the test wants it");
        if number == 0 {
            if self.asks {
                drop(checkpointer.checkpoint().await);
            }
            return Outcome::Continue;
        }
        if self.does(Does::StopsShard) {
            return Outcome::StopShard("as the test wants it".into());
        }
        if self.does(Does::StopsWorker) {
            return Outcome::StopWorker("as the test wants it".into());
        }
        Outcome::Continue
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        if self.does(Does::HangsAtTheEnd) {
            std::future::pending::<()>().await;
        }
        checkpointer.checkpoint().await?;
        Ok(())
    }
}

fn worker(name: &str, table: &Table, source: &Moody, processors: &Processors) -> WorkerBuilder {
    let processors = processors.clone();
    let factory = move |_: &ShardContext| processors.clone();
    setting::worker(table, source, factory).with_name(name.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_stream_does_not_list_its_shards_stops_as_fast_as_any() {
    let (table, source, processors) = (table(), Moody::new(1), Processors::that(Does::Nothing));
    let worker = worker("a", &table, &source, &processors);
    let worker = worker.with_sync_interval(Duration::from_secs(1)).build().unwrap();
    let handle = worker.handle();
    let run = tokio::spawn(worker.run());
    until("it reads", SOON, || handle.status().shards.len() == 1).await;
    source.lists_hang.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(30)).await;

    let ticks = handle.status().counters.ticks;
    sleep(Duration::from_secs(30)).await;
    assert!(handle.status().counters.ticks > ticks, "it goes on ticking");
    handle.stop();

    assert!(timeout(Duration::from_secs(5), run).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_joins_takes_its_share_though_its_stream_does_not_list_its_shards() {
    let (table, source, processors) = (table(), Moody::new(4), Processors::that(Does::Nothing));
    let first = worker("a", &table, &source, &processors).build().unwrap();
    let first_handle = first.handle();
    tokio::spawn(first.run());
    until("it reads", SOON, || first_handle.status().shards.len() == 4).await;
    source.lists_hang.store(true, Ordering::SeqCst);

    let second = worker("b", &table, &source, &processors).build().unwrap();
    let handle = second.handle();
    tokio::spawn(second.run());

    until("both read two", SOON, || handle.status().shards.len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn what_hangs_as_it_begins_or_ends_is_broken_off_as_a_batch_is() {
    for does in [Does::HangsAsItBegins, Does::HangsAtTheEnd] {
        let (table, source, processors) = (table(), Moody::new(1), Processors::that(does));
        source.stream.put_all([("a", "1"), ("b", "2")]);
        let worker = worker("a", &table, &source, &processors);
        let worker = worker.with_batch_limit(Duration::from_secs(10)).build().unwrap();
        let handle = worker.handle();
        tokio::spawn(worker.run());
        until("it begins", SOON, || processors.begun() > 0).await;
        let shard = source.stream.open_shards()[0].clone();
        source.stream.split(&shard.id, u128::MAX / 2).unwrap();

        let ended = || handle.status().counters.ended == 1;
        until("it reads to the end", Duration::from_mins(2), ended).await;
        assert_eq!(handle.status().counters.restarts, 1, "{does:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_processor_hangs_as_it_begins_is_handed_over_at_once() {
    let (table, source) = (table(), Moody::new(1));
    let hanging = Processors::that(Does::HangsAsItBegins);
    let first = worker("a", &table, &source, &hanging).build().unwrap();
    let handle = first.handle();
    tokio::spawn(first.run());
    until("it begins", SOON, || hanging.begun() == 1).await;
    let next = Processors::that(Does::Nothing);
    tokio::spawn(worker("b", &table, &source, &next).build().unwrap().run());
    sleep(Duration::from_secs(20)).await;

    handle.stop();

    until("the other begins", Duration::from_secs(5), || next.begun() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_worked_on_is_checkpointed_before_a_shard_is_given_up() {
    for (does, asks) in [
        (Does::StopsShard, false),
        (Does::StopsWorker, false),
        (Does::StopsShard, true),
        (Does::StopsWorker, true),
    ] {
        let (table, source) = (table(), Moody::new(1));
        let processors = Processors { asks, ..Processors::that(does) };
        let every = Checkpoints::Every(Duration::from_mins(10));
        let checkpoints = if asks { Checkpoints::ByProcessor } else { every };
        let builder = || {
            let worker = worker("a", &table, &source, &processors);
            worker.with_checkpoints(checkpoints).build().unwrap()
        };
        let run = tokio::spawn(builder().run());
        until("it begins", SOON, || processors.begun() == 1).await;
        table.choose(move |call| (asks && call == Call::Write).then_some(Fault::Fail));
        source.stream.put_all([("a", "1"), ("b", "2")]);
        until("it works", SOON, || processors.batches.load(Ordering::SeqCst) == 1).await;
        sleep(Duration::from_secs(1)).await;
        table.heal();

        source.stream.put_all([("a", "3")]);

        until("it stops", SOON, || processors.batches.load(Ordering::SeqCst) == 2).await;
        if does == Does::StopsWorker {
            assert!(run.await.unwrap().is_err());
            tokio::spawn(builder().run());
        }
        until("another begins", IN_THE_END, || processors.begun() == 2).await;
        let begun_at = processors.begun_at.lock().unwrap().clone();
        assert_ne!(begun_at[1], begun_at[0], "{does:?}, asks {asks}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_processor_began_elsewhere_is_cancelled_as_it_ends() {
    let (table, source, processors) = (table(), Moody::new(1), Processors::that(Does::Panics));
    source.stream.put_all([("a", "1")]);
    tokio::spawn(worker("a", &table, &source, &processors).build().unwrap().run());

    until("another begins", SOON, || processors.begun() == 2).await;

    let is_cancelled = |token: &CancellationToken| token.is_cancelled();
    let tokens = processors.tokens.lock().unwrap();
    assert_eq!(tokens.iter().map(is_cancelled).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_read_is_seen_to_fall_behind() {
    let (table, source, processors) = (table(), Moody::new(1), Processors::that(Does::Nothing));
    let worker = worker("a", &table, &source, &processors).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    until("it reads", SOON, || handle.status().shards.len() == 1).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(handle.status().shards[0].behind, Duration::ZERO);

    source.reads_fail.store(true, Ordering::SeqCst);
    sleep(Duration::from_hours(1)).await;

    assert!(handle.status().shards[0].behind >= Duration::from_mins(59));
}

/// A processor that panics as it is dropped.
struct Dropped;

impl Drop for Dropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "as the test wants it");
    }
}

#[async_trait]
impl RecordProcessor for Dropped {
    async fn process_records(&mut self, _batch: &Batch, _: &Checkpointer) -> Outcome {
        Outcome::StopShard("as the test wants it".into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_panics_as_it_is_dropped_is_still_given_a_rest() {
    let (table, stream) = (table(), SimStream::new(1));
    stream.put_all([("a", "1")]);
    let worker = setting::worker(&table, &stream, |_: &ShardContext| Dropped).build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());

    sleep(Duration::from_mins(10)).await;

    let obtained = handle.status().counters.obtained;
    assert!((2..=40).contains(&obtained), "{obtained} times");
}
