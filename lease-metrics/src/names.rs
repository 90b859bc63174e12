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
/// How far a tick that is marked as run is ahead of this machine's clock. 0 if the clocks agree.
pub const JOB_CLOCK_AHEAD_SECONDS: &str = "lease_job_clock_ahead_seconds";

/// Shards that this worker reads now, by application and stream. KCL: `CurrentLeases`.
pub const KINESIS_SHARDS_HELD: &str = "lease_kinesis_shards_held";
/// Shards that the plan assigns to this worker, by application. KCL: `NeededLeases` is this number, less the held shards.
pub const KINESIS_SHARDS_WANTED: &str = "lease_kinesis_shards_wanted";
/// Shards that a worker can read now, by application. This includes the shards that no worker may get. KCL:
/// `TotalLeases`.
pub const KINESIS_SHARDS_PLANNED: &str = "lease_kinesis_shards_planned";
/// Workers of the plan. KCL: `NumWorkers`.
pub const KINESIS_WORKERS: &str = "lease_kinesis_workers";
/// Changes of the plan, by application.
pub const KINESIS_PLAN_CHANGES: &str = "lease_kinesis_plan_changes_total";
/// Shards that this worker obtained, by stream. KCL: `TakeLease.Success`.
pub const KINESIS_SHARDS_OBTAINED: &str = "lease_kinesis_shards_obtained_total";
/// Shards that this worker no longer reads, by stream and `end`. KCL: `LostLeases` is the end `lost`.
pub const KINESIS_SHARDS_ENDED: &str = "lease_kinesis_shards_ended_total";
/// The largest lag of a shard of this worker, by stream. KCL: `MillisBehindLatest`.
pub const KINESIS_BEHIND_SECONDS: &str = "lease_kinesis_behind_seconds";
/// The lag of each shard, on request, by stream and shard. KCL: `MillisBehindLatest`.
pub const KINESIS_SHARD_BEHIND_SECONDS: &str = "lease_kinesis_shard_behind_seconds";
/// Records that were processed, by stream. KCL: `RecordsProcessed`.
pub const KINESIS_RECORDS: &str = "lease_kinesis_records_total";
/// The length of the data of processed records, by stream. KCL: `DataBytesProcessed`.
pub const KINESIS_BYTES: &str = "lease_kinesis_bytes_total";
/// Time of a call of a record processor, by stream and result. KCL: `RecordProcessor.processRecords.Time`.
pub const KINESIS_PROCESS_SECONDS: &str = "lease_kinesis_process_seconds";
/// Time to the answer of a checkpoint's write, by stream and result. KCL: `UpdateLease.Time`.
pub const KINESIS_CHECKPOINT_SECONDS: &str = "lease_kinesis_checkpoint_seconds";
/// Rows of the table that this worker has read, by application.
pub const KINESIS_TABLE_ROWS_READ: &str = "lease_kinesis_table_rows_read_total";
/// Read units that this worker has used, by application: an estimate by the rules of DynamoDB.
pub const KINESIS_TABLE_READ_UNITS: &str = "lease_kinesis_table_read_units_total";
/// Requests of this worker that write one row of the table, by application.
pub const KINESIS_TABLE_WRITES: &str = "lease_kinesis_table_writes_total";
/// Write units that this worker has used, by application: an estimate by the rules of DynamoDB.
pub const KINESIS_TABLE_WRITE_UNITS: &str = "lease_kinesis_table_write_units_total";
/// Failed reads, by stream and cause. KCL: `ExpiredIterator` is the cause `expired_iterator`.
pub const KINESIS_READ_FAILURES: &str = "lease_kinesis_read_failures_total";

/// Pending events, when an exporter last measured them.
pub const EXPORT_PENDING: &str = "lease_export_pending";
/// The age of the oldest pending event, when an exporter last measured it. 0 if no event is pending.
pub const EXPORT_OLDEST_SECONDS: &str = "lease_export_oldest_seconds";
/// Exports that run in this process: 0 or 1.
pub const EXPORT_RUNNING: &str = "lease_export_running";
/// Time of an export, by end: `done`, `failed` or `dropped`.
pub const EXPORT_SECONDS: &str = "lease_export_seconds";
/// Time of a batch with all retries, by result.
pub const EXPORT_BATCH_SECONDS: &str = "lease_export_batch_seconds";
/// Records of the sink that were sent.
pub const EXPORT_RECORDS: &str = "lease_export_records_total";
/// Events that the sink has taken.
pub const EXPORT_SENT: &str = "lease_export_sent_total";
/// Events that the sink has neither taken nor refused. They stay pending, and count again at the next export.
pub const EXPORT_FAILED: &str = "lease_export_failed_total";
/// Events that the sink never takes, by reason and destination.
pub const EXPORT_REJECTED: &str = "lease_export_rejected_total";
/// Events that were collected from buckets.
pub const EXPORT_COLLECTED: &str = "lease_export_collected_total";
/// Bucket entries that made no event.
pub const EXPORT_BAD: &str = "lease_export_bad_total";

pub use lease_core::{RATIO_BUCKETS, SECONDS_BUCKETS};

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
    describe_gauge!(
        JOB_CLOCK_AHEAD_SECONDS,
        Unit::Seconds,
        "How far a tick that is marked as run is ahead of this clock"
    );
}

#[cfg(feature = "kinesis")]
pub(crate) fn describe_kinesis() {
    describe_gauge!(KINESIS_SHARDS_HELD, "Shards that this worker reads now");
    describe_gauge!(KINESIS_SHARDS_WANTED, "Shards that the plan assigns to this worker");
    describe_gauge!(KINESIS_SHARDS_PLANNED, "Shards that a worker can read now");
    describe_gauge!(KINESIS_WORKERS, "Workers of the plan");
    describe_counter!(KINESIS_PLAN_CHANGES, "Changes of the plan");
    describe_counter!(KINESIS_SHARDS_OBTAINED, "Shards that this worker obtained");
    describe_counter!(KINESIS_SHARDS_ENDED, "Shards that this worker no longer reads");
    describe_gauge!(KINESIS_BEHIND_SECONDS, Unit::Seconds, "Largest lag of a shard");
    describe_gauge!(KINESIS_SHARD_BEHIND_SECONDS, Unit::Seconds, "Lag of a shard");
    describe_counter!(KINESIS_RECORDS, "Records that were processed");
    describe_counter!(KINESIS_BYTES, Unit::Bytes, "Data of processed records");
    describe_histogram!(KINESIS_PROCESS_SECONDS, Unit::Seconds, "Time of a call of a processor");
    describe_histogram!(KINESIS_CHECKPOINT_SECONDS, Unit::Seconds, "Time of a checkpoint's write");
    describe_counter!(KINESIS_TABLE_ROWS_READ, "Rows of the table that this worker has read");
    describe_counter!(KINESIS_TABLE_READ_UNITS, "Read units, by the rules of DynamoDB");
    describe_counter!(KINESIS_TABLE_WRITES, "Requests that write one row of the table");
    describe_counter!(KINESIS_TABLE_WRITE_UNITS, "Write units, by the rules of DynamoDB");
    describe_counter!(KINESIS_READ_FAILURES, "Failed reads of the stream");
}

#[cfg(feature = "export")]
pub(crate) fn describe_export() {
    describe_gauge!(EXPORT_PENDING, "Pending events");
    describe_gauge!(EXPORT_OLDEST_SECONDS, Unit::Seconds, "Age of the oldest pending event");
    describe_gauge!(EXPORT_RUNNING, "Exports that run in this process");
    describe_histogram!(EXPORT_SECONDS, Unit::Seconds, "Time of an export");
    describe_histogram!(EXPORT_BATCH_SECONDS, Unit::Seconds, "Time of a batch with all retries");
    describe_counter!(EXPORT_RECORDS, "Records of the sink that were sent");
    describe_counter!(EXPORT_SENT, "Events that the sink has taken");
    describe_counter!(EXPORT_FAILED, "Events that the sink has not taken, and that stay pending");
    describe_counter!(EXPORT_REJECTED, "Events that the sink never takes");
    describe_counter!(EXPORT_COLLECTED, "Events that were collected from buckets");
    describe_counter!(EXPORT_BAD, "Bucket entries that made no event");
}
