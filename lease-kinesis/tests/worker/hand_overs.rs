//! Hand-overs that take long, and hand-overs during faults of the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use lease_core::conformance::{Call, Fault};
use lease_core::store::LeaseTable;
use lease_kinesis::{
    Batch, Checkpointer, Outcome, ProcessorError, RecordProcessor, ShardContext, SimStream,
};
use tokio::time::{sleep, timeout};

use crate::setting::{IN_THE_END, Idle, SOON, Table, evict, table, until, worker};

#[derive(Clone, Default)]
struct SlowShutdown {
    active: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[async_trait]
impl RecordProcessor for SlowShutdown {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        let active = self.active.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(active, Ordering::SeqCst);
        sleep(Duration::from_secs(8)).await;
        self.active.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_hand_overs_stay_within_limit() {
    let (table, stream, slow) = (table(), SimStream::new(12), SlowShutdown::default());
    let processors = slow.clone();
    let first = worker(&table, &stream, move |_: &ShardContext| processors.clone());
    let first = first.with_name("a".parse().unwrap()).with_max_hand_overs(2).build().unwrap();
    let first_handle = first.handle();
    tokio::spawn(first.run());
    until("the worker reads", SOON, || first_handle.status().shards.len() == 12).await;

    for name in ["b", "c", "d"] {
        let next = worker(&table, &stream, |_: &ShardContext| Idle);
        tokio::spawn(next.with_name(name.parse().unwrap()).build().unwrap().run());
        sleep(Duration::from_secs(5)).await;
    }

    until("the first worker keeps its share", IN_THE_END, || {
        first_handle.status().shards.len() == 3
    })
    .await;
    assert_eq!(slow.most.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn worker_stops_although_its_row_cannot_be_written() {
    for fault in [Fault::Fail, Fault::Hang] {
        let (table, stream) = (table(), SimStream::new(2));
        let worker = worker(&table, &stream, |_: &ShardContext| Idle);
        let worker = worker.with_grace(Duration::from_mins(5)).build().unwrap();
        let handle = worker.handle();
        let run = tokio::spawn(worker.run());
        until("the worker reads", SOON, || handle.status().shards.len() == 2).await;
        sleep(Duration::from_secs(5)).await;
        table.every(Call::Write, fault);

        handle.stop();

        assert!(timeout(SOON, run).await.is_ok(), "{fault:?}");
    }
}

struct Hanging;

#[async_trait]
impl RecordProcessor for Hanging {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        std::future::pending().await
    }

    async fn lease_lost(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn worker_ends_after_grace_time_while_all_calls_hang() {
    let everything = [Call::Obtain, Call::Heartbeat, Call::Release, Call::Write, Call::Read];
    for hanging in [&[][..], &[Call::Write, Call::Release], &everything] {
        let (table, stream) = (table(), SimStream::new(1));
        stream.put_all([("a", "1")]);
        let worker = worker(&table, &stream, |_: &ShardContext| Hanging);
        let worker = worker.with_grace(Duration::from_secs(9)).build().unwrap();
        let handle = worker.handle();
        let run = tokio::spawn(worker.run());
        until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
        sleep(Duration::from_secs(1)).await;
        for call in hanging {
            table.every(*call, Fault::Hang);
        }

        handle.stop();

        let ended = timeout(Duration::from_millis(9_001), run).await;
        assert!(ended.is_ok(), "{hanging:?}");
        let left = table.inner().list("shop/workers/").count().await;
        assert_eq!(left == 0, hanging.is_empty(), "the worker removes its own row last");
    }
}

#[tokio::test(start_paused = true)]
async fn worker_stopped_at_start_ends_after_grace_time() {
    let (table, stream) = (table(), SimStream::new(1));
    table.every(Call::Obtain, Fault::Hang);
    let worker = worker(&table, &stream, |_: &ShardContext| Idle);
    let worker = worker.with_grace(Duration::from_secs(1)).build().unwrap();
    let handle = worker.handle();
    let run = tokio::spawn(worker.run());
    sleep(Duration::from_millis(100)).await;

    handle.stop();

    assert!(timeout(Duration::from_millis(1_001), run).await.is_ok());
}

#[derive(Clone)]
struct FaultAtHandOver {
    table: Table,
    fault: Fault,
}

#[async_trait]
impl RecordProcessor for FaultAtHandOver {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        self.table.next(Call::Write, self.fault);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn hand_over_without_answer_counts_as_hand_over() {
    for fault in [Fault::Fail, Fault::Hang, Fault::LoseReply, Fault::HangReply] {
        let (table, stream) = (table(), SimStream::new(2));
        let faulty = FaultAtHandOver { table: table.clone(), fault };
        let first = worker(&table, &stream, move |_: &ShardContext| faulty.clone());
        let first = first.with_name("a".parse().unwrap()).build().unwrap();
        let first_handle = first.handle();
        tokio::spawn(first.run());
        until("the worker reads", SOON, || first_handle.status().shards.len() == 2).await;
        let next = worker(&table, &stream, |_: &ShardContext| Idle);
        let next = next.with_name("b".parse().unwrap()).build().unwrap();
        let next_handle = next.handle();
        tokio::spawn(next.run());

        until("each reads one shard", IN_THE_END, || next_handle.status().shards.len() == 1).await;
        until("the first worker reads only one", SOON, || first_handle.status().shards.len() == 1)
            .await;

        let counters = first_handle.status().counters;
        assert_eq!((counters.handed_over, counters.lost), (1, 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shard_evicted_before_hand_over_counts_as_lost() {
    let (table, stream) = (table(), SimStream::new(1));
    let slow = SlowShutdown::default();
    let (shutdowns, processors) = (Arc::clone(&slow.active), slow.clone());
    let first = worker(&table, &stream, move |_: &ShardContext| processors.clone());
    let first = first.with_name("a".parse().unwrap()).build().unwrap();
    let handle = first.handle();
    tokio::spawn(first.run());
    until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
    tokio::spawn(worker(&table, &stream, |_: &ShardContext| Idle).build().unwrap().run());
    sleep(Duration::from_secs(10)).await;
    handle.stop();
    until("the processor shuts down", SOON, || shutdowns.load(Ordering::SeqCst) == 1).await;

    evict(&table, "a").await;

    until("the worker has ended", IN_THE_END, || handle.status().shards.is_empty()).await;
    let counters = handle.status().counters;
    assert_eq!((counters.handed_over, counters.lost), (0, 1));
}
