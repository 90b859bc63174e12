//! The metrics of a worker of Kinesis.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, Checkpointer, Faults, InitialPosition, Outcome, RecordProcessor, ShardContext,
    SimStream, Worker,
};
use lease_memory::MemoryStore;
use lease_opentelemetry::KinesisMeter;
use opentelemetry::metrics::MeterProvider;
use tokio::time::{sleep, timeout};

use crate::Exported;

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

#[tokio::test(start_paused = true)]
async fn each_metric_of_worker_is_exported() {
    let exported = Exported::new();
    let metrics = KinesisMeter::new("clicks", &exported.provider.meter("leases")).with_shards();
    let stream = SimStream::new(1);
    let factory = |_: &ShardContext| Checkpointing;
    let worker = Worker::builder("shop", MemoryStore::new(), stream.clone(), factory)
        .with_initial_position(InitialPosition::TrimHorizon)
        .with_metrics(Arc::new(metrics))
        .build()
        .unwrap();
    let (handle, running) = (worker.handle(), tokio::spawn(worker.run()));
    assert_eq!(
        exported.values()["lease_kinesis_read_failures_total cause=throttled stream=clicks"],
        0
    );

    stream.put_all([("a", "bad")]);
    let is_processed = async {
        while handle.status().counters.records == 0 {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(60), is_processed).await.unwrap();
    stream.set_faults(Faults { throttled: 1.0, ..Faults::default() });
    sleep(Duration::from_secs(60)).await;

    let values = exported.values();
    for (name, value) in [
        ("lease_kinesis_shards_held application=clicks stream=clicks", 1),
        ("lease_kinesis_shards_wanted application=clicks", 1),
        ("lease_kinesis_shards_planned application=clicks", 1),
        ("lease_kinesis_workers application=clicks", 1),
        ("lease_kinesis_shards_obtained_total stream=clicks", 1),
        ("lease_kinesis_shards_ended_total end=lost stream=clicks", 0),
        ("lease_kinesis_records_total stream=clicks", 1),
        ("lease_kinesis_bytes_total stream=clicks", 3),
        ("lease_kinesis_process_seconds result=ok stream=clicks", 1),
        ("lease_kinesis_process_seconds result=error stream=clicks", 1),
        ("lease_kinesis_checkpoint_seconds result=ok stream=clicks", 1),
    ] {
        assert_eq!(values.get(name), Some(&value), "{name}: {values:#?}");
    }
    for name in [
        "lease_kinesis_table_rows_read_total application=clicks",
        "lease_kinesis_table_read_units_total application=clicks",
        "lease_kinesis_table_writes_total application=clicks",
        "lease_kinesis_table_write_units_total application=clicks",
        "lease_kinesis_behind_seconds stream=clicks",
        "lease_kinesis_shard_behind_seconds shard=shardId-000000000000 stream=clicks",
        "lease_kinesis_read_failures_total cause=throttled stream=clicks",
    ] {
        assert!(values.get(name).is_some_and(|value| *value > 0), "{name}: {values:#?}");
    }
    assert!(values.contains_key("lease_kinesis_plan_changes_total application=clicks"));
    stream.set_faults(Faults::default());
    handle.stop();
    running.await.unwrap().unwrap();
    let values = exported.values();
    assert_eq!(values["lease_kinesis_shards_held application=clicks stream=clicks"], 0);
    assert_eq!(values["lease_kinesis_shards_ended_total end=released stream=clicks"], 1);
    assert_eq!(values["lease_kinesis_behind_seconds stream=clicks"], 0);
    let of_shard = "lease_kinesis_shard_behind_seconds shard=shardId-000000000000 stream=clicks";
    assert_eq!(values[of_shard], 0);
    assert_eq!(values["lease_kinesis_shards_wanted application=clicks"], 0);
}

#[tokio::test(start_paused = true)]
async fn workers_of_one_process_have_plans_of_their_own() {
    let exported = Exported::new();
    let meter = exported.provider.meter("leases");
    let mut workers = Vec::new();
    for (name, shards) in [("clicks", 1), ("orders", 3)] {
        let factory = |_: &ShardContext| Checkpointing;
        let worker = Worker::builder(name, MemoryStore::new(), SimStream::new(shards), factory)
            .with_initial_position(InitialPosition::TrimHorizon)
            .with_metrics(Arc::new(KinesisMeter::new(name, &meter)))
            .build()
            .unwrap();
        let handle = worker.handle();
        workers.push(tokio::spawn(worker.run()));
        let all_read = async {
            while handle.status().shards.len() < usize::from(shards) {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(Duration::from_secs(60), all_read).await.unwrap();
    }
    sleep(Duration::from_secs(60)).await;

    let values = exported.values();
    assert_eq!(values["lease_kinesis_shards_planned application=clicks"], 1);
    assert_eq!(values["lease_kinesis_shards_planned application=orders"], 3);
    assert_eq!(values["lease_kinesis_shards_held application=orders stream=orders"], 3);
}
