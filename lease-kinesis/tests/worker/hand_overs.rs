//! How shards are given away where that takes long, or the table is in the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use lease_core::LeaseTable;
use lease_core::conformance::{Call, Fault};
use lease_kinesis::{
    Batch, Checkpointer, Outcome, ProcessorError, RecordProcessor, ShardContext, SimStream,
};
use tokio::time::{sleep, timeout};

use crate::setting::{IN_THE_END, Idle, SOON, Table, table, until, worker};

/// Takes its time for its last words.
#[derive(Clone, Default)]
struct Slow {
    speaking: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[async_trait]
impl RecordProcessor for Slow {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        let speaking = self.speaking.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(speaking, Ordering::SeqCst);
        sleep(Duration::from_secs(8)).await;
        self.speaking.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_hand_overs_are_under_way_than_allowed_whoever_joins_meanwhile() {
    let (table, stream, slow) = (table(), SimStream::new(12), Slow::default());
    let processors = slow.clone();
    let first = worker(&table, &stream, move |_: &ShardContext| processors.clone());
    let first = first.with_name("a".parse().unwrap()).with_max_hand_overs(2).build().unwrap();
    let first_handle = first.handle();
    tokio::spawn(first.run());
    until("it reads", SOON, || first_handle.status().shards.len() == 12).await;

    for name in ["b", "c", "d"] {
        let next = worker(&table, &stream, |_: &ShardContext| Idle);
        tokio::spawn(next.with_name(name.parse().unwrap()).build().unwrap().run());
        sleep(Duration::from_secs(5)).await;
    }

    until("it has its share", IN_THE_END, || first_handle.status().shards.len() == 3).await;
    assert_eq!(slow.most.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn who_stops_gives_away_what_it_has_though_its_own_row_cannot_be_written() {
    for fault in [Fault::Fail, Fault::Hang] {
        let (table, stream) = (table(), SimStream::new(2));
        let worker = worker(&table, &stream, |_: &ShardContext| Idle);
        let worker = worker.with_grace(Duration::from_mins(5)).build().unwrap();
        let handle = worker.handle();
        let run = tokio::spawn(worker.run());
        until("it reads", SOON, || handle.status().shards.len() == 2).await;
        sleep(Duration::from_secs(5)).await;
        table.every(Call::Write, fault);

        handle.stop();

        assert!(timeout(SOON, run).await.is_ok(), "{fault:?}");
    }
}

/// Does not come to an end, whatever it is told.
struct Stubborn;

#[async_trait]
impl RecordProcessor for Stubborn {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        std::future::pending().await
    }

    async fn lease_lost(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_stops_is_gone_when_its_grace_time_is_over_whatever_hangs() {
    let everything = [Call::Obtain, Call::Heartbeat, Call::Release, Call::Write, Call::Read];
    for hanging in [&[][..], &[Call::Write, Call::Release], &everything] {
        let (table, stream) = (table(), SimStream::new(1));
        stream.put_all([("a", "1")]);
        let worker = worker(&table, &stream, |_: &ShardContext| Stubborn);
        let worker = worker.with_grace(Duration::from_secs(9)).build().unwrap();
        let handle = worker.handle();
        let run = tokio::spawn(worker.run());
        until("it reads", SOON, || handle.status().shards.len() == 1).await;
        sleep(Duration::from_secs(1)).await;
        for call in hanging {
            table.every(*call, Fault::Hang);
        }

        handle.stop();

        let ended = timeout(Duration::from_millis(9_001), run).await;
        assert!(ended.is_ok(), "{hanging:?}");
        let left = table.inner().list("shop/workers/").count().await;
        assert_eq!(left == 0, hanging.is_empty(), "its own row goes last");
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_stopped_before_it_has_begun_is_gone_when_its_grace_time_is_over() {
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

/// Has something befall the request that gives its shard away.
#[derive(Clone)]
struct Hindered {
    table: Table,
    fault: Fault,
}

#[async_trait]
impl RecordProcessor for Hindered {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        self.table.next(Call::Write, self.fault);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_whose_answer_is_lost_counts_as_one() {
    for fault in [Fault::Fail, Fault::Hang, Fault::LoseReply, Fault::HangReply] {
        let (table, stream) = (table(), SimStream::new(2));
        let hindered = Hindered { table: table.clone(), fault };
        let first = worker(&table, &stream, move |_: &ShardContext| hindered.clone());
        let first = first.with_name("a".parse().unwrap()).build().unwrap();
        let first_handle = first.handle();
        tokio::spawn(first.run());
        until("it reads", SOON, || first_handle.status().shards.len() == 2).await;
        let next = worker(&table, &stream, |_: &ShardContext| Idle);
        let next = next.with_name("b".parse().unwrap()).build().unwrap();
        let next_handle = next.handle();
        tokio::spawn(next.run());

        until("both read one", IN_THE_END, || next_handle.status().shards.len() == 1).await;
        until("it knows", SOON, || first_handle.status().shards.len() == 1).await;

        let counters = first_handle.status().counters;
        assert_eq!((counters.handed_over, counters.lost), (1, 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_evicted_before_it_is_given_away_counts_as_lost() {
    let (table, stream) = (table(), SimStream::new(1));
    let slow = Slow::default();
    let (words, processors) = (Arc::clone(&slow.speaking), slow.clone());
    let first = worker(&table, &stream, move |_: &ShardContext| processors.clone());
    let first = first.with_name("a".parse().unwrap()).build().unwrap();
    let handle = first.handle();
    tokio::spawn(first.run());
    until("it reads", SOON, || handle.status().shards.len() == 1).await;
    let token = handle.status().shards[0].token;
    tokio::spawn(worker(&table, &stream, |_: &ShardContext| Idle).build().unwrap().run());
    sleep(Duration::from_secs(10)).await;
    handle.stop();
    until("it says its last words", SOON, || words.load(Ordering::SeqCst) == 1).await;

    let key = "shop/shards/shardId-000000000000".parse().unwrap();
    assert!(table.inner().evict(&key, token).await.unwrap());

    until("it has ended", IN_THE_END, || handle.status().shards.is_empty()).await;
    let counters = handle.status().counters;
    assert_eq!((counters.handed_over, counters.lost), (0, 1));
}
