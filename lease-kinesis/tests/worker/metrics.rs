//! The events that a worker reports to metrics, and the spans of its processors' calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault};
use lease_kinesis::{
    Batch, Checkpointer, Faults, Outcome, Planned, ReadingEnd, RecordProcessor, ShardContext,
    ShardName, ShardStatus, SimStream, SourceErrorKind, TableUse, WorkerMetrics,
};
use lease_test_servers::warnings::listen_by;
use tokio::time::sleep;
use tracing_subscriber::layer::SubscriberExt;

use crate::setting::{self, IN_THE_END, SOON, table, until};
use crate::spans::Spans;

/// Counts each event by its name.
#[derive(Debug, Default)]
struct Counted {
    events: Mutex<BTreeMap<String, u64>>,
    behind: Mutex<Vec<Duration>>,
}

impl Counted {
    fn count(&self, event: impl Into<String>, by: u64) {
        *self.events.lock().unwrap().entry(event.into()).or_default() += by;
    }

    fn of(&self, event: &str) -> u64 {
        self.events.lock().unwrap().get(event).copied().unwrap_or_default()
    }

    fn behind(&self) -> Vec<Duration> {
        self.behind.lock().unwrap().clone()
    }

    fn held(&self) -> u64 {
        let ended: u64 = ReadingEnd::ALL.iter().map(|end| self.of(end.name())).sum();
        self.of("obtained") - ended
    }
}

#[deny(clippy::missing_trait_methods)]
impl WorkerMetrics for Counted {
    fn obtained(&self, _shard: &ShardName) {
        self.count("obtained", 1);
    }

    fn ended(&self, _shard: &ShardName, end: ReadingEnd) {
        self.count(end.name(), 1);
    }

    fn planned(&self, plan: &Planned) {
        self.count("planned", 1);
        self.count("changed", u64::from(plan.has_changed));
        self.events.lock().unwrap().insert("wanted".to_owned(), plan.wanted as u64);
        self.events.lock().unwrap().insert("workers".to_owned(), plan.workers as u64);
        self.events.lock().unwrap().insert("shards".to_owned(), plan.shards as u64);
    }

    fn stopped(&self) {
        self.count("stopped", 1);
    }

    fn table_used(&self, used: &TableUse) {
        self.count("rows read", used.rows_read);
        self.count("read units", used.read_units);
        self.count("writes", used.writes);
        self.count("write units", used.write_units);
    }

    fn behind(&self, shards: &[ShardStatus]) {
        *self.behind.lock().unwrap() = shards.iter().map(|shard| shard.behind).collect();
    }

    fn processed(&self, _shard: &ShardName, records: u64, bytes: u64) {
        self.count("records", records);
        self.count("bytes", bytes);
    }

    fn called(&self, _shard: &ShardName, _took: Duration, is_ok: bool) {
        self.count(if is_ok { "called" } else { "call failed" }, 1);
    }

    fn checkpointed(&self, _shard: &ShardName, _took: Duration, is_ok: bool) {
        self.count(if is_ok { "checkpointed" } else { "checkpoint failed" }, 1);
    }

    fn read_failed(&self, _shard: &ShardName, kind: SourceErrorKind) {
        self.count(kind.name(), 1);
    }
}

/// Fails for the record `bad` once, and checkpoints all other batches.
struct Checkpointing;

#[async_trait]
impl RecordProcessor for Checkpointing {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if batch.attempt == 0 && batch.records.iter().any(|record| record.data == "bad") {
            return Outcome::Failed("a bad record".into());
        }
        checkpointer.checkpoint().await.into()
    }
}

fn processors() -> impl Fn(&ShardContext) -> Checkpointing + Send + Sync + 'static {
    |_: &ShardContext| Checkpointing
}

#[tokio::test(start_paused = true)]
async fn each_event_is_reported_once() {
    let (table, stream, counted) = (table(), SimStream::new(2), Arc::new(Counted::default()));
    let worker = setting::worker(&table, &stream, processors());
    let worker = worker.with_metrics(Arc::clone(&counted) as _).build().unwrap();
    let (handle, running) = (worker.handle(), tokio::spawn(worker.run()));
    until("both shards are read", SOON, || counted.held() == 2).await;

    stream.put_all([("a", "good"), ("a", "bad"), ("b", "good")]);
    until("all records are processed", SOON, || counted.of("records") == 3).await;

    assert_eq!(counted.of("bytes"), 11);
    assert_eq!(counted.of("call failed"), 1);
    assert!(counted.of("checkpointed") >= 2);
    assert_eq!((counted.of("wanted"), counted.of("workers")), (2, 1));
    table.next(Call::Write, Fault::Fail);
    stream.put_all([("a", "more")]);
    until("a checkpoint fails", SOON, || counted.of("checkpoint failed") == 1).await;
    handle.stop();
    running.await.unwrap().unwrap();
    assert_eq!((counted.held(), counted.of("released")), (0, 2));
    assert_eq!((counted.of("stopped"), counted.behind()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn moved_shards_are_reported_by_both_workers() {
    let (table, stream) = (table(), SimStream::new(4));
    let (one, other) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
    let start = |counted: &Arc<Counted>| {
        let worker = setting::worker(&table, &stream, processors());
        let worker = worker.with_metrics(Arc::clone(counted) as _).build().unwrap();
        (worker.handle(), tokio::spawn(worker.run()))
    };
    let (_handle, running) = start(&one);
    until("one worker reads all shards", SOON, || one.held() == 4).await;

    let (_handle, _running) = start(&other);
    until("the shards are shared", IN_THE_END, || one.held() == 2 && other.held() == 2).await;

    assert_eq!((one.of("handed_over"), other.of("obtained")), (2, 2));
    assert!(one.of("changed") > 0);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!((one.held(), one.of("stopped")), (0, 1), "a dropped worker reports its end");
}

#[tokio::test(start_paused = true)]
async fn plan_counts_shards_that_no_worker_may_get() {
    let (table, stream, counted) = (table(), SimStream::new(4), Arc::new(Counted::default()));
    let worker = setting::worker(&table, &stream, processors()).with_max_shards(1);
    let worker = worker.with_metrics(Arc::clone(&counted) as _).build().unwrap();
    let _running = tokio::spawn(worker.run());
    until("one shard is read", SOON, || counted.held() == 1).await;

    until("all shards are counted", SOON, || counted.of("shards") == 4).await;

    assert_eq!((counted.of("wanted"), counted.held()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn plan_counts_no_worker_that_waits_for_its_predecessor() {
    let (table, stream) = (table(), SimStream::new(4));
    let (old, new) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
    let worker = setting::worker(&table, &stream, processors());
    let worker = worker.with_metrics(Arc::clone(&old) as _).build().unwrap();
    let name = worker.name().clone();
    let (handle, running) = (worker.handle(), tokio::spawn(worker.run()));
    until("the first worker reads all shards", SOON, || old.held() == 4).await;

    let worker = setting::worker(&table, &stream, processors()).replacing(name);
    let worker = worker.with_metrics(Arc::clone(&new) as _).build().unwrap();
    let _running = tokio::spawn(worker.run());
    until("the successor has a plan", IN_THE_END, || new.of("planned") > 0).await;

    assert_eq!((new.of("workers"), new.of("wanted"), new.of("shards")), (1, 0, 4));
    handle.stop();
    running.await.unwrap().unwrap();
    until("the successor reads all shards", IN_THE_END, || new.held() == 4).await;
    assert_eq!(new.of("workers"), 1);
}

#[tokio::test(start_paused = true)]
async fn lag_grows_while_stream_does_not_answer() {
    let (table, stream, counted) = (table(), SimStream::new(1), Arc::new(Counted::default()));
    let worker = setting::worker(&table, &stream, processors());
    let worker = worker.with_metrics(Arc::clone(&counted) as _).build().unwrap();
    let _running = tokio::spawn(worker.run());
    until("the shard is read", SOON, || counted.held() == 1).await;

    stream.set_faults(Faults { throttled: 0.5, unavailable: 0.5, ..Faults::default() });
    sleep(Duration::from_mins(6)).await;

    let behind = counted.behind();
    assert!(behind.len() == 1 && behind[0] > Duration::from_mins(5), "{behind:?}");
    for kind in [SourceErrorKind::Throttled, SourceErrorKind::Unavailable] {
        assert!(counted.of(kind.name()) > 0, "{counted:?}");
    }
    stream.set_faults(Faults::default());
    until("the expired iterator is counted", SOON, || counted.of("expired_iterator") > 0).await;
    until("the lag ends", SOON, || counted.behind() == [Duration::ZERO]).await;
}

#[derive(Debug)]
struct Panicking;

impl WorkerMetrics for Panicking {
    fn obtained(&self, _shard: &ShardName) {
        panic!("injected by the test");
    }

    fn planned(&self, _plan: &Planned) {
        panic!("injected by the test");
    }

    fn called(&self, _shard: &ShardName, _took: Duration, _is_ok: bool) {
        panic!("injected by the test");
    }

    fn ended(&self, _shard: &ShardName, _end: ReadingEnd) {
        panic!("injected by the test");
    }

    fn stopped(&self) {
        panic!("injected by the test");
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_metrics_does_not_stop_worker() {
    let (table, stream) = (table(), SimStream::new(1));
    let worker = setting::worker(&table, &stream, processors());
    let worker = worker.with_metrics(Arc::new(Panicking)).build().unwrap();
    let (handle, running) = (worker.handle(), tokio::spawn(worker.run()));

    stream.put_all([("a", "good")]);
    let is_processed = || handle.status().counters.records == 1;
    until("the record is processed", SOON, is_processed).await;

    assert_eq!(handle.status().counters.restarts, 0);
    handle.stop();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn processor_runs_in_span_of_its_call() {
    let spans = Spans::default();
    let _guard = listen_by(tracing_subscriber::registry().with(spans.clone()));
    let (table, stream) = (table(), SimStream::new(1));
    let worker = setting::worker(&table, &stream, processors()).build().unwrap();
    let (handle, running) = (worker.handle(), tokio::spawn(worker.run()));

    stream.put_all([("a", "bad")]);
    until("the record is processed", SOON, || handle.status().counters.records == 1).await;
    handle.stop();
    running.await.unwrap().unwrap();

    let key = "key=shop/shards/shardId-000000000000";
    for (call, attempt) in [
        ("initialize", 0),
        ("process_records", 0),
        ("process_records", 1),
        ("shutdown_requested", 0),
    ] {
        let span = format!("worker > record_processor call=\"{call}\" attempt={attempt} {key}");
        assert!(spans.has(&span), "{span} is missing: {spans:#?}");
    }
}
