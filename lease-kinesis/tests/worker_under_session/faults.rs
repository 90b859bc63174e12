//! Faults of the table and of the stream, after which other workers must still learn of changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault};
use lease_kinesis::{
    Batch, CheckpointError, Checkpointer, Faults, InitialPosition, Outcome, ProcessorError,
    ProcessorFactory, RecordProcessor, Shard, ShardContext, SimStream, Source, StreamId, Worker,
    WorkerBuilder, WorkerHandle,
};
use tokio::sync::Barrier;
use tokio::time::sleep;

use crate::damaged::Damaged;
use crate::setting::{IN_THE_END, Idle, SOON, evict, table, until, worker};

fn builder(table: &Damaged, stream: &SimStream, name: &str) -> WorkerBuilder {
    of(table, stream, name, |_: &ShardContext| Idle)
}

fn of(
    table: &Damaged,
    stream: &SimStream,
    name: &str,
    factory: impl ProcessorFactory,
) -> WorkerBuilder {
    Worker::builder("shop", table.clone(), stream.clone(), factory)
        .with_name(name.parse().unwrap())
        .with_session()
        .with_initial_position(InitialPosition::TrimHorizon)
}

fn start(builder: WorkerBuilder) -> WorkerHandle {
    let worker = builder.build().unwrap();
    let handle = worker.handle();
    tokio::spawn(worker.run());
    handle
}

fn share(handle: &WorkerHandle) -> usize {
    handle.status().shards.len()
}

fn split(stream: &SimStream, shard: &Shard) {
    let (first, last) = (shard.hash_keys.first(), shard.hash_keys.last());
    stream.split(&shard.id, first + (last - first) / 2).unwrap();
}

/// All shards end at the same time. The first one to finish is a moment ahead of the others.
#[derive(Clone)]
struct EndsTogether {
    all: Arc<Barrier>,
    ended: Arc<AtomicUsize>,
}

#[async_trait]
impl RecordProcessor for EndsTogether {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.all.wait().await;
        if self.ended.fetch_add(1, Ordering::SeqCst) > 0 {
            sleep(Duration::from_millis(100)).await;
        }
        let checkpointed: Result<_, CheckpointError> = checkpointer.checkpoint().await;
        Ok(checkpointed.map(drop)?)
    }
}

/// The first end makes the worker write its row at once, while a report is due. The other ends follow before the
/// report. The first worker by name would find them by its audit, so the shards of the other worker end.
#[tokio::test(start_paused = true)]
async fn change_before_a_pending_report_is_written_before_it_is_counted() {
    let (table, stream) = (Damaged::default(), SimStream::new(16));
    let ends = EndsTogether { all: Arc::new(Barrier::new(8)), ended: Arc::default() };
    let no_audit = Duration::from_hours(10);
    let processors = ends.clone();
    let b = of(&table, &stream, "b", move |_: &ShardContext| processors.clone());
    let b = start(b.with_sync_interval(no_audit));
    until("b reads all", SOON, || share(&b) == 16).await;
    let a = start(builder(&table, &stream, "a").with_sync_interval(no_audit));
    until("each reads 8 shards", IN_THE_END, || share(&a) == 8 && share(&b) == 8).await;
    sleep(Duration::from_mins(1)).await;

    let read_by_b: Vec<_> = b.status().shards.into_iter().map(|shard| shard.shard).collect();
    let open = stream.open_shards();
    open.iter().filter(|shard| read_by_b.contains(&shard.id)).for_each(|it| split(&stream, it));
    until("the shards end", SOON, || ends.ended.load(Ordering::SeqCst) == 8).await;

    // b takes half of the 24 shards, so a must know some children of the later ends.
    let are_shared = || share(&a) == 12 && share(&b) == 12;
    until("each reads 12 shards", Duration::from_secs(20), are_shared).await;
}

#[tokio::test(start_paused = true)]
async fn unreadable_row_is_skipped_until_it_is_mended() {
    let (table, stream) = (Damaged::default(), SimStream::new(2));
    let a = start(builder(&table, &stream, "a"));
    let b = start(builder(&table, &stream, "b"));
    until("each reads a shard", IN_THE_END, || share(&a) == 1 && share(&b) == 1).await;

    table.damage("shop/shards/shardId-000000000002");
    split(&stream, &stream.open_shards()[0]);
    sleep(Duration::from_secs(5)).await;
    until("both read the other shards", SOON, || share(&a) + share(&b) == 2).await;
    let c = start(builder(&table, &stream, "c"));
    split(&stream, &stream.open_shards()[0]);
    let all = || share(&a) + share(&b) + share(&c);
    until("all read the other shards", IN_THE_END, || all() == 3 && share(&c) == 1).await;

    table.mend();
    until("all shards are read", IN_THE_END, || all() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn unreadable_row_of_a_worker_stops_no_other_worker() {
    let (table, stream) = (Damaged::default(), SimStream::new(4));
    let a = start(builder(&table, &stream, "a"));
    let b = start(builder(&table, &stream, "b"));
    until("each reads 2 shards", IN_THE_END, || share(&a) == 2 && share(&b) == 2).await;

    table.damage("shop/workers/b");
    b.stop();
    until("b has ended", IN_THE_END, || share(&b) == 0).await;
    until("a reads all", IN_THE_END, || share(&a) == 4).await;
    let c = start(builder(&table, &stream, "c"));

    until("c reads its share", IN_THE_END, || share(&a) == 2 && share(&c) == 2).await;
    sleep(SOON).await;
    assert_eq!(table.counted_sessions().await, 2, "the session of b has ended");
}

/// The sessions are then found by the rows of shards, and watched by all workers.
#[tokio::test(start_paused = true)]
async fn unreadable_counters_stop_no_worker() {
    let (table, stream) = (Damaged::default(), SimStream::new(6));
    // A new worker is found by a list.
    let builder = |name| builder(&table, &stream, name).with_sync_interval(Duration::from_secs(5));
    let [a, b] = ["a", "b"].map(|name| start(builder(name)));
    let c = builder("c").build().unwrap();
    let (handle, running) = (c.handle(), tokio::spawn(c.run()));
    let are_shared = || share(&a) == 2 && share(&b) == 2 && share(&handle) == 2;
    until("each reads 2 shards", IN_THE_END, are_shared).await;

    table.damage("shop/changes");
    sleep(Duration::from_secs(30)).await;
    running.abort();
    until("a and b read all", SOON * 2, || share(&a) == 3 && share(&b) == 3).await;
    let d = start(builder("d"));
    until("d reads its share", IN_THE_END, || share(&d) == 2).await;

    table.mend();
    sleep(SOON).await;
    assert_eq!(table.counted_sessions().await, 3);
}

#[tokio::test(start_paused = true)]
async fn worker_whose_counts_fail_continues_to_plan() {
    let (table, stream) = (Damaged::default(), SimStream::new(4));
    let a = builder(&table, &stream, "a");
    let a = start(a);
    until("a reads all", SOON, || share(&a) == 4).await;
    let connection = table.connection();
    let b = start(builder(&connection, &stream, "b"));
    until("each reads 2 shards", IN_THE_END, || share(&a) == 2 && share(&b) == 2).await;

    // b has news after the split, and cannot count them.
    connection.is_throttled.store(true, Ordering::SeqCst);
    let read_by_b = b.status().shards[0].shard.clone();
    let open = stream.open_shards();
    open.iter().filter(|shard| shard.id == read_by_b).for_each(|shard| split(&stream, shard));
    sleep(Duration::from_secs(10)).await;
    a.stop();

    until("b reads all", IN_THE_END, || share(&b) == 5).await;
}

/// All workers count in one row. Counts at each tick would throttle it for longer.
#[tokio::test(start_paused = true)]
async fn failed_counts_back_off() {
    let (table, stream) = (Damaged::default(), SimStream::new(4));
    let a = start(builder(&table, &stream, "a"));
    until("a reads all", SOON, || share(&a) == 4).await;
    sleep(Duration::from_mins(1)).await;

    table.is_throttled.store(true, Ordering::SeqCst);
    split(&stream, &stream.open_shards()[0]);
    sleep(Duration::from_secs(20)).await;
    let before = table.counts.load(Ordering::SeqCst);
    sleep(Duration::from_mins(1)).await;
    let counts = table.counts.load(Ordering::SeqCst) - before;
    table.is_throttled.store(false, Ordering::SeqCst);
    let b = start(builder(&table, &stream, "b"));

    // One for each ttl.
    assert!((4..=8).contains(&counts), "{counts} counts in a minute");
    until("both read their shares", IN_THE_END, || share(&a) + share(&b) == 5).await;
}

#[tokio::test(start_paused = true)]
async fn stream_without_rows_makes_only_the_first_worker_list_often() {
    let table = Damaged::default();
    let never = Faults { unavailable: 1.0, ..Faults::default() };
    let (known, unknown) = (SimStream::new(30), SimStream::new(1).with_faults(1, never));
    let stream = |name: &str| -> StreamId { format!("123456789012:{name}:1").parse().unwrap() };
    let start_of_streams = |name: &str| {
        let sources: [(_, Arc<dyn Source>); 2] = [
            (stream("known"), Arc::new(known.clone())),
            (stream("unknown"), Arc::new(unknown.clone())),
        ];
        let idle = |_: &ShardContext| Idle;
        let worker = Worker::builder_of_streams("shop", table.clone(), sources, idle);
        let worker = worker.with_name(name.parse().unwrap()).with_session();
        start(worker.with_initial_position(InitialPosition::TrimHorizon))
    };
    let handles = ["a", "b", "c"].map(start_of_streams);
    let are_shared = || handles.iter().all(|handle| share(handle) == 10);
    until("each reads 10 shards", IN_THE_END, are_shared).await;
    sleep(Duration::from_mins(5)).await;
    let counts = |handle: &WorkerHandle| {
        let counters = handle.status().counters;
        (counters.rows_read, counters.ticks)
    };

    let before = handles.each_ref().map(counts);
    sleep(Duration::from_mins(10)).await;
    let after = handles.each_ref().map(counts);

    let rows_per_tick: Vec<_> =
        before.into_iter().zip(after).map(|(old, new)| (new.0 - old.0) / (new.1 - old.1)).collect();
    assert!(rows_per_tick[0] >= 30, "the first worker lists all rows: {rows_per_tick:?}");
    assert!(rows_per_tick[1..].iter().all(|rows| *rows <= 12), "{rows_per_tick:?}");
}

/// The rows are more than the notices of one worker, and more than the rows that a worker reads one by one.
#[tokio::test(start_paused = true)]
async fn rows_that_are_created_late_are_known_to_all_workers_soon() {
    let table = Damaged::default();
    let never = Faults { unavailable: 1.0, ..Faults::default() };
    let stream = SimStream::new(600).with_faults(1, never);
    let no_audit = Duration::from_hours(10);
    let start = |name: &str| start(builder(&table, &stream, name).with_sync_interval(no_audit));
    let handles = ["a", "b", "c"].map(start);
    sleep(Duration::from_mins(5)).await;

    stream.set_faults(Faults::default());

    let are_shared = || handles.iter().all(|handle| share(handle) == 200);
    until("each reads 200 shards", Duration::from_secs(30), are_shared).await;
}

#[tokio::test(start_paused = true)]
async fn checks_of_lost_leases_do_not_delay_the_worker() {
    let (table, stream) = (Damaged::default(), SimStream::new(12));
    let a = start(builder(&table, &stream, "a").with_sync_interval(Duration::from_secs(20)));
    until("a reads all", SOON, || share(&a) == 12).await;
    sleep(Duration::from_secs(30)).await;

    table.hangs.store(true, Ordering::SeqCst);
    table.lose_claims().await;
    let (mut ticks, mut seconds, mut longest) = (0, 0, 0);
    for _second in 0..120 {
        sleep(Duration::from_secs(1)).await;
        let before = std::mem::replace(&mut ticks, a.status().counters.ticks);
        seconds = if ticks == before { seconds + 1 } else { 0 };
        longest = longest.max(seconds);
    }
    assert!(longest < 10, "the worker did not tick for {longest} s");
    assert_eq!(a.status().counters.lost, 0, "the checks are not answered");
    table.hangs.store(false, Ordering::SeqCst);

    until("a reads all again", SOON, || a.status().counters.lost == 12 && share(&a) == 12).await;
}

/// The store does not answer about more shards than are checked in one tick.
#[tokio::test(start_paused = true)]
async fn unanswered_checks_do_not_prevent_other_checks() {
    let (table, stream) = (Damaged::default(), SimStream::new(160));
    let a = start(builder(&table, &stream, "a").with_sync_interval(Duration::from_secs(20)));
    until("a reads all", SOON, || share(&a) == 160).await;
    sleep(Duration::from_secs(30)).await;

    table.first_hang.store(140, Ordering::SeqCst);
    table.lose_claims().await;

    until("the others are checked", IN_THE_END, || a.status().counters.lost == 20).await;
}

#[derive(Clone)]
struct FailsToHandOver {
    table: crate::setting::Table,
    shutdowns: Arc<AtomicUsize>,
}

#[async_trait]
impl RecordProcessor for FailsToHandOver {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        self.table.every(Call::Write, Fault::Fail);
        self.shutdowns.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn shard_of_session_that_ends_during_a_transfer_counts_as_lost() {
    let (table, stream) = (table(), SimStream::new(2));
    let failing = FailsToHandOver { table: table.clone(), shutdowns: Arc::default() };
    let shutdowns = Arc::clone(&failing.shutdowns);
    let first = worker(&table, &stream, move |_: &ShardContext| failing.clone());
    let handle = start(first.with_name("a".parse().unwrap()));
    until("the worker reads", SOON, || share(&handle) == 2).await;
    start(worker(&table, &stream, |_: &ShardContext| Idle).with_name("b".parse().unwrap()));
    until("a hands over", SOON, || shutdowns.load(Ordering::SeqCst) == 1).await;
    sleep(Duration::from_secs(1)).await;

    evict(&table, "a").await;

    until("a has no shard", IN_THE_END, || share(&handle) == 0).await;
    let counters = handle.status().counters;
    assert_eq!((counters.handed_over, counters.lost), (0, 2));
}
