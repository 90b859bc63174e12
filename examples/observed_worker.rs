//! A worker of a stream serves its metrics to Prometheus, and stops on Ctrl-C.
#![expect(clippy::print_stdout, reason = "the example shows its address")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clap::Parser;
use lease_kinesis::{
    Batch, Checkpointer, InitialPosition, Outcome, RecordProcessor, ShardContext, SimStream, Worker,
};
use lease_memory::MemoryStore;
use lease_metrics::{KinesisMetrics, LeaseMetrics, names};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::time::sleep;

/// Reads a simulated stream, and serves metrics.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where to serve the metrics.
    #[arg(long, default_value = "127.0.0.1:9464", value_name = "ADDRESS")]
    listen: SocketAddr,
}

struct Clicks;

#[async_trait]
impl RecordProcessor for Clicks {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        checkpointer.checkpoint().await.into()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { listen } = Arguments::parse();
    let ratio = Matcher::Full(names::HEARTBEAT_MARGIN_RATIO.to_owned());
    // The adapters register their metrics with this recorder, so it comes first.
    PrometheusBuilder::new()
        .set_buckets(&names::SECONDS_BUCKETS)?
        .set_buckets_for_metric(ratio, &names::RATIO_BUCKETS)?
        .with_http_listener(listen)
        .install()?;

    let stream = SimStream::new(4);
    let worker =
        Worker::builder("clicks", MemoryStore::new(), stream.clone(), |_: &ShardContext| Clicks)
            .with_initial_position(InitialPosition::TrimHorizon)
            .with_metrics(Arc::new(KinesisMetrics::new("clicks")))
            .with_lease_metrics(Arc::new(LeaseMetrics::new("memory")))
            .build()?;
    let (handle, running) = (worker.handle(), tokio::spawn(worker.run()));
    println!("metrics: http://{listen}/metrics");
    let produce = async {
        for number in 0_u32.. {
            stream.put(&format!("customer {}", number % 50), number.to_string());
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped?,
        () = produce => (),
    }
    handle.stop();
    running.await??;
    Ok(())
}
