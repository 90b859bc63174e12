//! The instruments of a meter.

use lease_core::{RATIO_BUCKETS, SECONDS_BUCKETS};
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

#[derive(Debug)]
pub(crate) struct Instruments {
    pub(crate) obtain: Counter<u64>,
    pub(crate) wait: Histogram<f64>,
    pub(crate) held_for: Histogram<f64>,
    pub(crate) held: UpDownCounter<i64>,
    pub(crate) waiters: UpDownCounter<i64>,
    pub(crate) at_risk: UpDownCounter<i64>,
    pub(crate) heartbeat: Histogram<f64>,
    pub(crate) margin: Histogram<f64>,
    pub(crate) heartbeat_failures: Counter<u64>,
    pub(crate) lost: Counter<u64>,
    pub(crate) store_request: Histogram<f64>,
}

impl Instruments {
    pub(crate) fn of(meter: &Meter) -> Self {
        let counter = |name, description| counter(meter, name, description);
        let gauge = |name, description| up_down(meter, name, description);
        let seconds = |name, description| seconds(meter, name, description);
        let margin = meter
            .f64_histogram("lease_heartbeat_margin_ratio")
            .with_description("Part of the ttl that was left when a heartbeat was answered")
            .with_boundaries(RATIO_BUCKETS.into())
            .build();
        Self {
            obtain: counter("lease_obtain_total", "Calls for a lease"),
            wait: seconds("lease_wait_seconds", "Time from the call to the lease"),
            held_for: seconds("lease_held_seconds", "Time from the grant to the end of a lease"),
            held: gauge("lease_held", "Leases that are held now"),
            waiters: gauge("lease_waiters", "Calls that wait now"),
            at_risk: gauge("lease_at_risk", "Leases whose last heartbeat failed or is late"),
            heartbeat: seconds("lease_heartbeat_seconds", "Time to the answer of a heartbeat"),
            margin,
            heartbeat_failures: counter(
                "lease_heartbeat_failures_total",
                "Heartbeats that failed or are late",
            ),
            lost: counter("lease_lost_total", "Leases that were lost"),
            store_request: seconds(
                "lease_store_request_seconds",
                "Time to the answer of a request",
            ),
        }
    }
}

pub(crate) fn counter(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
) -> Counter<u64> {
    meter.u64_counter(name).with_description(description).build()
}

/// An instrument for a number that events increase and decrease.
pub(crate) fn up_down(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
) -> UpDownCounter<i64> {
    meter.i64_up_down_counter(name).with_description(description).build()
}

pub(crate) fn seconds(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
) -> Histogram<f64> {
    let histogram = meter.f64_histogram(name).with_description(description);
    histogram.with_unit("s").with_boundaries(SECONDS_BUCKETS.into()).build()
}

/// An instrument for a number that is measured.
#[cfg(any(feature = "kinesis", feature = "export", feature = "scheduler"))]
pub(crate) fn measured(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
) -> opentelemetry::metrics::Gauge<f64> {
    meter.f64_gauge(name).with_description(description).build()
}
