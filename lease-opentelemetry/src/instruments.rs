//! The instruments of a meter.

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
        let counter =
            |name, description| meter.u64_counter(name).with_description(description).build();
        let gauge = |name, description| {
            meter.i64_up_down_counter(name).with_description(description).build()
        };
        let seconds = |name, description| {
            let histogram = meter.f64_histogram(name).with_description(description);
            histogram.with_unit("s").with_boundaries(SECONDS.into()).build()
        };
        let margin = meter
            .f64_histogram("lease_heartbeat_margin_ratio")
            .with_description("Part of the ttl that was left when a heartbeat was answered")
            .with_boundaries(RATIOS.into())
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

/// From a millisecond to a day.
const SECONDS: [f64; 16] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0,
    21_600.0, 86_400.0,
];

const RATIOS: [f64; 10] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
