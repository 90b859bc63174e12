//! Workers of a Kinesis stream that does not answer, with processors that fail, or with too few workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, Checkpointer, Faults, InitialPosition, Outcome, RecordProcessor, ShardContext,
    SimStream, Worker, WorkerHandle,
};
use lease_memory::MemoryStore;
use lease_metrics::{KinesisMetrics, LeaseMetrics};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::recording::{Recording, mins};

pub(crate) const ALERTS: &[&[&str]] = &[UNANSWERED, UNREAD, FAILED];
const UNANSWERED: &[&str] = &["KinesisBehind", "KinesisReadsFail"];
const UNREAD: &[&str] = &["KinesisShardsUnread"];
const FAILED: &[&str] = &["KinesisBatchesFail"];

/// Workers that read four shards. Each worker may hold at most two of them.
struct Fleet {
    recording: Recording,
    table: MemoryStore,
    stream: SimStream,
    fails: Arc<AtomicBool>,
}

struct Running {
    handle: WorkerHandle,
    task: JoinHandle<()>,
}

struct Processor(Arc<AtomicBool>);

#[async_trait]
impl RecordProcessor for Processor {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if self.0.load(Ordering::SeqCst) {
            return Outcome::Failed("no database".into());
        }
        checkpointer.checkpoint().await.into()
    }
}

impl Fleet {
    /// The producer of the stream writes records every five seconds.
    fn new() -> Self {
        let stream = SimStream::new(4);
        let puts = stream.clone();
        tokio::spawn(async move {
            loop {
                let keys = ["customer 1", "customer 2", "customer 3", "customer 4", "customer 5"];
                puts.put_all(keys.map(|key| (key, "a click")));
                sleep(Duration::from_secs(5)).await;
            }
        });
        let (recording, table) = (Recording::start(), MemoryStore::new());
        Self { recording, table, stream, fails: Arc::default() }
    }

    fn start(&mut self, name: &str) -> Running {
        let process = self.recording.process(name);
        let metrics = process.with_metrics(|| KinesisMetrics::new("clicks"));
        let leases = process.with_metrics(|| LeaseMetrics::new("memory"));
        let fails = Arc::clone(&self.fails);
        let factory = move |_: &ShardContext| Processor(Arc::clone(&fails));
        let worker = Worker::builder("shop", self.table.clone(), self.stream.clone(), factory)
            .with_name(name.parse().unwrap())
            .with_initial_position(InitialPosition::TrimHorizon)
            .with_idle_pause(Duration::from_secs(5))
            .with_max_shards(2)
            .with_metrics(Arc::new(metrics))
            .with_lease_metrics(Arc::new(leases))
            .build()
            .unwrap();
        let handle = worker.handle();
        Running { handle, task: tokio::spawn(async move { worker.run().await.unwrap() }) }
    }

    async fn stop(&mut self, worker: Running, name: &str) {
        worker.handle.stop();
        worker.task.await.unwrap();
        self.recording.end(name);
    }
}

#[tokio::test(start_paused = true)]
async fn healthy_workers_and_their_deployment_fire_no_alert() {
    let mut fleet = Fleet::new();
    let old = ["a", "b"].map(|name| fleet.start(name));
    fleet.recording.run_for(mins(20)).await;

    for (old, [name, new]) in old.into_iter().zip([["a", "c"], ["b", "d"]]) {
        fleet.stop(old, name).await;
        drop(fleet.start(new));
        fleet.recording.run_for(mins(10)).await;
    }

    fleet.recording.expect_none_so_far();
    fleet.recording.check(&[]);
}

#[tokio::test(start_paused = true)]
async fn unanswered_reads_make_workers_fall_behind() {
    let mut fleet = Fleet::new();
    let _workers = ["a", "b"].map(|name| fleet.start(name));
    fleet.recording.run_for(mins(12)).await;
    fleet.recording.expect_none_so_far();

    fleet.stream.set_faults(Faults { unavailable: 1.0, ..Faults::default() });
    fleet.recording.run_for(mins(14)).await;
    fleet.recording.expect(&[
        ("KinesisBehind", r#"stream="clicks""#),
        ("KinesisReadsFail", r#"stream="clicks",cause="unavailable""#),
    ]);
    fleet.stream.set_faults(Faults::default());
    fleet.recording.run_for(mins(10)).await;

    fleet.recording.expect(&[]);
    fleet.recording.check(UNANSWERED);
}

/// One of two workers ends, and the other may not take its shards.
#[tokio::test(start_paused = true)]
async fn too_few_workers_leave_shards_unread() {
    let mut fleet = Fleet::new();
    let _a = fleet.start("a");
    let b = fleet.start("b");
    fleet.recording.run_for(mins(12)).await;
    fleet.recording.expect_none_so_far();

    fleet.stop(b, "b").await;
    fleet.recording.run_for(mins(8)).await;
    fleet.recording.expect(&[("KinesisShardsUnread", r#"job="shop",application="clicks""#)]);
    let _c = fleet.start("c");
    fleet.recording.run_for(mins(10)).await;

    fleet.recording.expect(&[]);
    fleet.recording.check(UNREAD);
}

#[tokio::test(start_paused = true)]
async fn crash_of_all_workers_leaves_shards_unread() {
    let mut fleet = Fleet::new();
    let workers = ["a", "b"].map(|name| (name, fleet.start(name)));
    fleet.recording.run_for(mins(12)).await;
    fleet.recording.expect_none_so_far();

    for (name, worker) in workers {
        worker.task.abort();
        fleet.recording.end(name);
    }
    fleet.recording.run_for(mins(8)).await;
    fleet.recording.expect(&[("KinesisShardsUnread", r#"job="shop",application="clicks""#)]);
    let _workers = ["c", "d"].map(|name| fleet.start(name));
    fleet.recording.run_for(mins(10)).await;

    fleet.recording.expect(&[]);
    fleet.recording.check(UNREAD);
}

#[tokio::test(start_paused = true)]
async fn failed_batches_are_reported() {
    let mut fleet = Fleet::new();
    let _workers = ["a", "b"].map(|name| fleet.start(name));
    fleet.recording.run_for(mins(12)).await;
    fleet.recording.expect_none_so_far();

    fleet.fails.store(true, Ordering::SeqCst);
    fleet.recording.run_for(mins(8)).await;
    fleet.recording.expect(&[("KinesisBatchesFail", r#"stream="clicks""#)]);
    fleet.fails.store(false, Ordering::SeqCst);
    fleet.recording.run_for(mins(15)).await;

    fleet.recording.expect(&[]);
    fleet.recording.check(FAILED);
}

/// An alert of a short failure would fire after its end.
#[tokio::test(start_paused = true)]
async fn short_failures_fire_no_alert() {
    let mut fleet = Fleet::new();
    let _workers = ["a", "b"].map(|name| fleet.start(name));
    fleet.recording.run_for(mins(12)).await;

    fleet.fails.store(true, Ordering::SeqCst);
    fleet.recording.run_for(Duration::from_secs(150)).await;
    fleet.fails.store(false, Ordering::SeqCst);
    fleet.recording.run_for(mins(12)).await;
    fleet.recording.expect_none_so_far();
    fleet.stream.set_faults(Faults { unavailable: 1.0, ..Faults::default() });
    fleet.recording.run_for(mins(6)).await;
    fleet.stream.set_faults(Faults::default());
    fleet.recording.run_for(mins(12)).await;

    fleet.recording.expect_none_so_far();
    fleet.recording.check(&[]);
}
