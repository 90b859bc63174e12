//! Serves the metrics as text for Prometheus.

use std::net::SocketAddr;
use std::sync::Arc;

use lease_kinesis::WorkerMetrics;
use lease_metrics::{KinesisMetrics, LeaseMetrics, names};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::configuration::settings::Settings;
use crate::failure::Failure;

type Served = (Arc<dyn WorkerMetrics>, Arc<LeaseMetrics>, JoinHandle<()>);

pub(crate) fn serve(address: SocketAddr, settings: &Settings) -> Result<Served, Failure> {
    let ratio = Matcher::Full(names::HEARTBEAT_MARGIN_RATIO.to_owned());
    let builder = PrometheusBuilder::new()
        .set_buckets(&names::SECONDS_BUCKETS)
        .and_then(|builder| builder.set_buckets_for_metric(ratio, &names::RATIO_BUCKETS))
        .map_err(Failure::other)?;
    let built = builder.with_http_listener(address).build();
    let (recorder, exporter) = built.map_err(|error| {
        Failure::other(format!("metrics cannot be served at {address}: {error}"))
    })?;
    // The adapter registers the lag of a shard when the daemon first reads the shard, with the recorder of the process.
    metrics::set_global_recorder(recorder).map_err(|_other| {
        Failure::other("metrics cannot be served: another recorder is installed")
    })?;
    let mut worker = KinesisMetrics::new(name_of(&settings.stream));
    if settings.shard_metrics {
        worker = worker.with_shards();
    }
    let leases = LeaseMetrics::builder("dynamodb")
        .with_group("shards", |key| key.as_str().contains("/shards/"))
        .build();
    if !address.ip().is_loopback() {
        warn!(
            %address,
            "metrics served to other machines, without a password and without a limit of connections"
        );
    }
    info!(%address, "metrics served");
    let task = tokio::spawn(async move {
        if let Err(error) = exporter.await {
            error!(?error, "metrics no longer served");
        }
    });
    Ok((Arc::new(worker), Arc::new(leases), task))
}

/// The name in an ARN, such as `arn:aws:kinesis:eu-west-1:123456789012:stream/orders`.
fn name_of(stream: &str) -> String {
    stream.rsplit('/').next().unwrap_or(stream).to_owned()
}
