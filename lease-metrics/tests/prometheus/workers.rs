//! The metrics of a worker of Kinesis.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, Checkpointer, Faults, InitialPosition, Outcome, RecordProcessor, ShardContext,
    SimStream, Worker, WorkerMetrics,
};
use lease_memory::MemoryStore;
use lease_metrics::KinesisMetrics;
use lease_test_servers::port::free_port;
use lease_test_servers::prometheus::PrometheusServer;
use metrics_exporter_prometheus::PrometheusRecorder;
use tokio::time::{sleep, timeout};

use crate::{builder, series};

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

fn metrics_on(recorder: &PrometheusRecorder) -> KinesisMetrics {
    metrics::with_local_recorder(recorder, || KinesisMetrics::new("clicks"))
}

fn worker(stream: &SimStream, metrics: impl WorkerMetrics) -> Worker {
    let factory = |_: &ShardContext| Checkpointing;
    Worker::builder("shop", MemoryStore::new(), stream.clone(), factory)
        .with_initial_position(InitialPosition::TrimHorizon)
        .with_metrics(Arc::new(metrics))
        .build()
        .unwrap()
}

#[tokio::test]
async fn each_metric_of_worker_is_scraped() {
    let address = ([127, 0, 0, 1], free_port());
    let (recorder, exporter) = builder().with_http_listener(address).build().unwrap();
    let _exporting = tokio::spawn(exporter);
    let stream = SimStream::new(2);
    // The adapter registers a shard with the recorder of the process, when the worker first reads the shard.
    metrics::set_global_recorder(recorder).unwrap();
    let worker = worker(&stream, KinesisMetrics::new("clicks").with_shards());
    let Some(server) = PrometheusServer::scraping(address.into()).await else { return };
    let is = |expected: f64| move |values: &[f64]| *values == [expected];
    let some = |values: &[f64]| values.iter().any(|value| *value >= 1.0);
    let zero = r#"lease_kinesis_read_failures_total{stream="clicks",cause="throttled"}"#;
    server.wait_for(zero, is(0.0)).await;
    server.wait_for(r#"lease_kinesis_shards_held{stream="clicks"}"#, is(0.0)).await;

    let (handle, running) = (worker.handle(), tokio::spawn(worker.run()));
    stream.put_all([("a", "good"), ("a", "bad")]);

    server.wait_for(r#"lease_kinesis_records_total{stream="clicks"}"#, is(2.0)).await;
    server.wait_for(r#"lease_kinesis_bytes_total{stream="clicks"}"#, is(7.0)).await;
    server.wait_for(r#"lease_kinesis_shards_held{stream="clicks"}"#, is(2.0)).await;
    server.wait_for(r#"lease_kinesis_shards_obtained_total{stream="clicks"}"#, is(2.0)).await;
    for gauge in ["lease_kinesis_shards_wanted", "lease_kinesis_shards_planned"] {
        server.wait_for(gauge, is(2.0)).await;
    }
    server.wait_for(r#"lease_kinesis_workers{application="clicks"}"#, is(1.0)).await;
    for counter in ["rows_read", "read_units", "writes", "write_units"] {
        let counter = format!(r#"lease_kinesis_table_{counter}_total{{application="clicks"}}"#);
        server.wait_for(&counter, some).await;
    }
    server.wait_for("lease_kinesis_plan_changes_total", |values| !values.is_empty()).await;
    let failed = r#"lease_kinesis_process_seconds_count{stream="clicks",result="error"}"#;
    server.wait_for(failed, is(1.0)).await;
    for histogram in ["process", "checkpoint"] {
        let count = format!(r#"lease_kinesis_{histogram}_seconds_count{{result="ok"}}"#);
        server.wait_for(&count, some).await;
    }
    stream.set_faults(Faults { throttled: 1.0, ..Faults::default() });
    server.wait_for(zero, some).await;
    // A read is recent for ten seconds.
    server.wait_for(r#"lease_kinesis_behind_seconds{stream="clicks"}"#, some).await;
    let of_shard = r#"lease_kinesis_shard_behind_seconds{stream="clicks",shard=~"shardId-.*"}"#;
    server.wait_for(of_shard, |values| values.len() == 2 && some(values)).await;

    stream.set_faults(Faults::default());
    handle.stop();
    running.await.unwrap().unwrap();
    let released = r#"lease_kinesis_shards_ended_total{stream="clicks",end="released"}"#;
    server.wait_for(released, is(2.0)).await;
    server.wait_for(r#"lease_kinesis_shards_held{stream="clicks"}"#, is(0.0)).await;
    server.wait_for(r#"lease_kinesis_shards_wanted{application="clicks"}"#, is(0.0)).await;
    // A shard that the worker no longer reads has the lag 0.
    server.wait_for(of_shard, |values| *values == [0.0, 0.0]).await;
}

#[tokio::test(start_paused = true)]
async fn number_of_series_does_not_depend_on_shards() {
    let mut numbers = Vec::new();
    for shards in [1, 100] {
        let recorder = builder().build_recorder();
        let stream = SimStream::new(shards);
        let worker = worker(&stream, metrics_on(&recorder));
        let (handle, running) = (worker.handle(), tokio::spawn(worker.run()));
        let all_read = async {
            while handle.status().shards.len() < usize::from(shards) {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(Duration::from_secs(300), all_read).await.unwrap();
        handle.stop();
        running.await.unwrap().unwrap();
        numbers.push(series(&recorder.handle()));
    }

    assert!(numbers[0] > 15 && numbers[0] == numbers[1], "{numbers:?}");
}

#[tokio::test(start_paused = true)]
async fn workers_of_one_process_have_plans_of_their_own() {
    let recorder = builder().build_recorder();
    let mut workers = Vec::new();
    for (name, shards) in [("clicks", 1), ("orders", 3)] {
        let metrics = metrics::with_local_recorder(&recorder, || KinesisMetrics::new(name));
        let worker = worker(&SimStream::new(shards), metrics);
        workers.push(tokio::spawn(worker.run()));
    }
    let has = |line: &str| recorder.handle().render().lines().any(|one| one == line);
    let all = async {
        while !has(r#"lease_kinesis_shards_planned{application="clicks"} 1"#)
            || !has(r#"lease_kinesis_shards_planned{application="orders"} 3"#)
            || !has(r#"lease_kinesis_shards_held{application="orders",stream="orders"} 3"#)
        {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(300), all).await.unwrap();
}
