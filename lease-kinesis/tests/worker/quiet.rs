//! Shards that are read from `LATEST`, and that have no records at first.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::Attributes;
use lease_core::store::LeaseTable;
use lease_kinesis::{
    Batch, Checkpointer, Faults, InitialPosition, Outcome, RecordProcessor, Retrieval,
    ShardContext, SimStream,
};
use tokio::time::sleep;

use crate::setting::{IN_THE_END, SOON, table, until, worker};

struct Remembering(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl RecordProcessor for Remembering {
    async fn process_records(&mut self, batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        let texts = batch.records.iter().map(|record| String::from_utf8_lossy(&record.data).into());
        self.0.lock().unwrap().extend(texts);
        Outcome::Continue
    }
}

/// During the outage, the iterator expires or the subscription ends. This crate or KCL wrote the
/// row.
#[tokio::test(start_paused = true)]
async fn first_record_during_stream_outage_is_read() {
    for (retrieval, row_of_kcl) in [
        (Retrieval::Polling, false),
        (Retrieval::Polling, true),
        (Retrieval::FanOut, false),
        (Retrieval::FanOut, true),
    ] {
        let (table, stream) = (table(), SimStream::new(1));
        if row_of_kcl {
            let key = "shop/shards/shardId-000000000000".parse().unwrap();
            let row = Attributes::from([("checkpoint".to_owned(), "LATEST".into())]);
            assert!(table.inner().create(&key, &row).await.unwrap());
        }
        let given = Arc::new(Mutex::new(Vec::new()));
        let gives = Arc::clone(&given);
        let factory = move |_: &ShardContext| Remembering(Arc::clone(&gives));
        let clock = stream.clone();
        let worker = worker(&table, &stream, factory)
            .with_initial_position(InitialPosition::Latest)
            .with_wall_clock(move || clock.wall_clock())
            .with_retrieval(retrieval);
        let worker = worker.build().unwrap();
        let handle = worker.handle();
        let running = tokio::spawn(worker.run());
        until("the worker reads", SOON, || handle.status().shards.len() == 1).await;
        sleep(Duration::from_secs(5)).await;

        stream.set_faults(Faults { unavailable: 1.0, ..Faults::default() });
        // The stream has no push under way after this time.
        sleep(Duration::from_secs(10)).await;
        stream.put_all([("a", "first")]);
        sleep(Duration::from_mins(6)).await;
        stream.set_faults(Faults::default());

        let is_read = || *given.lock().unwrap() == ["first"];
        let what = format!("the record is read, {retrieval:?}, a row of KCL: {row_of_kcl}");
        until(&what, IN_THE_END, is_read).await;
        handle.stop();
        running.await.unwrap().unwrap();
    }
}
