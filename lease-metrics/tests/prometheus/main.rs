//! Each metric through a real Prometheus: the library reports, the server scrapes, and a query returns the value.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod exporters;
mod jobs;
mod leases;
mod workers;

use lease_metrics::names;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

fn builder() -> PrometheusBuilder {
    let ratio = Matcher::Full(names::HEARTBEAT_MARGIN_RATIO.to_owned());
    PrometheusBuilder::new()
        .set_buckets(&names::SECONDS_BUCKETS)
        .unwrap()
        .set_buckets_for_metric(ratio, &names::RATIO_BUCKETS)
        .unwrap()
}

fn series(handle: &PrometheusHandle) -> usize {
    handle.render().lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count()
}
