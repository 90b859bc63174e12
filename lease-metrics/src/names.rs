//! The names of the metrics, their units and descriptions, and buckets for their histograms.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Calls for a lease, by result: `granted`, `held` or `error`.
pub const OBTAIN: &str = "lease_obtain_total";
/// Time from the call to the lease.
pub const WAIT_SECONDS: &str = "lease_wait_seconds";
/// Time from the grant to the end of a lease, by end: `released` or `lost`.
pub const HELD_SECONDS: &str = "lease_held_seconds";
/// Leases that are held now.
pub const HELD: &str = "lease_held";
/// Calls that wait now, once per key.
pub const WAITERS: &str = "lease_waiters";
/// Leases that are at risk now: their last heartbeat failed or is late.
pub const AT_RISK: &str = "lease_at_risk";
/// Time from a successful heartbeat to its answer.
pub const HEARTBEAT_SECONDS: &str = "lease_heartbeat_seconds";
/// The part of the trusted ttl that was left when a heartbeat was answered: 1 is best, 0 is a loss.
pub const HEARTBEAT_MARGIN_RATIO: &str = "lease_heartbeat_margin_ratio";
/// Heartbeats that failed or are late.
pub const HEARTBEAT_FAILURES: &str = "lease_heartbeat_failures_total";
/// Leases that were lost, by [cause](lease_core::LossCause::name).
pub const LOST: &str = "lease_lost_total";
/// Time from a request to its answer, by store, [operation](lease_core::StoreOperation::name), and result: `ok` or
/// `error`.
pub const STORE_REQUEST_SECONDS: &str = "lease_store_request_seconds";

/// Runs of a job, and ticks that did not run on this machine, by outcome.
pub const JOB_RUNS: &str = "lease_job_runs_total";
/// Ticks of a job that no machine started in time. One machine of the fleet counts them.
pub const JOB_MISSED_TICKS: &str = "lease_job_missed_ticks_total";
/// How long the body of a job ran.
pub const JOB_DURATION_SECONDS: &str = "lease_job_duration_seconds";
/// Time from a tick to the start of the body.
pub const JOB_LATENESS_SECONDS: &str = "lease_job_lateness_seconds";

/// Buckets for the histograms in seconds, from a millisecond to a day.
pub const SECONDS_BUCKETS: [f64; 16] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0,
    21_600.0, 86_400.0,
];

/// Buckets for [`HEARTBEAT_MARGIN_RATIO`].
pub const RATIO_BUCKETS: [f64; 10] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

pub(crate) fn describe() {
    describe_counter!(OBTAIN, "Calls for a lease");
    describe_histogram!(WAIT_SECONDS, Unit::Seconds, "Time from the call to the lease");
    describe_histogram!(HELD_SECONDS, Unit::Seconds, "Time from the grant to the end of a lease");
    describe_gauge!(HELD, "Leases that are held now");
    describe_gauge!(WAITERS, "Calls that wait now");
    describe_gauge!(AT_RISK, "Leases whose last heartbeat failed or is late");
    describe_histogram!(HEARTBEAT_SECONDS, Unit::Seconds, "Time to the answer of a heartbeat");
    describe_histogram!(HEARTBEAT_MARGIN_RATIO, "Part of the ttl left at a heartbeat's answer");
    describe_counter!(HEARTBEAT_FAILURES, "Heartbeats that failed or are late");
    describe_counter!(LOST, "Leases that were lost");
    describe_histogram!(STORE_REQUEST_SECONDS, Unit::Seconds, "Time to the answer of a request");
}

#[cfg(feature = "scheduler")]
pub(crate) fn describe_jobs() {
    describe_counter!(JOB_RUNS, "Runs of a job, and ticks that did not run here");
    describe_counter!(JOB_MISSED_TICKS, "Ticks that no machine started in time");
    describe_histogram!(JOB_DURATION_SECONDS, Unit::Seconds, "How long the body of a job ran");
    describe_histogram!(JOB_LATENESS_SECONDS, Unit::Seconds, "Time from a tick to its start");
}
