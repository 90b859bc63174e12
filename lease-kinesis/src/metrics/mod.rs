//! The events that a worker reports, for the application's metrics.
//!
//! Start with [`WorkerMetrics`]. [`guarded`] protects the worker from the application's metrics.

pub(crate) mod guarded;

use std::fmt;
use std::time::Duration;

use crate::names::ShardName;
use crate::source::SourceErrorKind;
use crate::status::shard::ShardStatus;

/// Receives the events of a worker. Each method does nothing by default.
///
/// The worker's tasks call these methods: keep them short, and do not block. The worker logs a panic, and continues.
/// The crates `lease-metrics` and `lease-opentelemetry` implement this trait.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use lease_kinesis::{ShardName, WorkerMetrics};
///
/// #[derive(Debug, Default)]
/// struct Records(AtomicU64);
///
/// impl WorkerMetrics for Records {
///     fn processed(&self, _shard: &ShardName, records: u64, _bytes: u64) {
///         self.0.fetch_add(records, Ordering::Relaxed);
///     }
/// }
/// ```
pub trait WorkerMetrics: fmt::Debug + Send + Sync + 'static {
    /// The worker has obtained a shard, and reads it. Exactly one call of [`ended`](Self::ended) follows, also if the
    /// worker is dropped. So the difference is the number of shards that the worker holds now.
    fn obtained(&self, shard: &ShardName) {
        let _ = shard;
    }

    /// The worker no longer reads a shard.
    fn ended(&self, shard: &ShardName, end: ReadingEnd) {
        let _ = (shard, end);
    }

    /// The worker has computed the plan, at each tick. [Under a session](crate::WorkerBuilder::with_session), a worker
    /// computes no plan while no row changes. After the last plan, [`stopped`](Self::stopped) follows.
    fn planned(&self, plan: &Planned) {
        let _ = plan;
    }

    /// The worker has ended, or was dropped. Called once for a worker that has run.
    fn stopped(&self) {}

    /// What the worker has requested from its table since the last call. Called at each tick, and at the end.
    fn table_used(&self, used: &TableUse) {
        let _ = used;
    }

    /// All shards that the worker reads now, each with its [lag](ShardStatus::behind). Called at each tick, also while
    /// the stream or the table does not answer. The slice is empty if the worker reads no shard.
    fn behind(&self, shards: &[ShardStatus]) {
        let _ = shards;
    }

    /// A processor has processed records, or has skipped them by a checkpoint. `bytes` is the length of their data.
    fn processed(&self, shard: &ShardName, records: u64, bytes: u64) {
        let _ = (shard, records, bytes);
    }

    /// A call of [`process_records`](crate::RecordProcessor::process_records) has ended after `took`. `is_ok` is true
    /// if the processor returned [`Continue`](crate::Outcome::Continue) or [`Skip`](crate::Outcome::Skip). `is_ok` is
    /// false if the processor failed, panicked, exceeded the time limit, or was interrupted by a lost lease.
    fn called(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        let _ = (shard, took, is_ok);
    }

    /// The store answered the write of a checkpoint after `took`. `is_ok` is false if the checkpoint was not written.
    fn checkpointed(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        let _ = (shard, took, is_ok);
    }

    /// A read of the stream failed. The end of a subscription, which Kinesis ends after some minutes, is no failure.
    fn read_failed(&self, shard: &ShardName, kind: SourceErrorKind) {
        let _ = (shard, kind);
    }
}

/// Why a worker no longer reads a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadingEnd {
    /// The worker handed the shard over to another worker.
    HandedOver,
    /// The worker lost the lease.
    Lost,
    /// The worker read the shard to its end.
    ShardEnd,
    /// The worker released the shard, or was dropped.
    Released,
}

impl ReadingEnd {
    /// All reasons, to register them before the first event.
    pub const ALL: &'static [Self] =
        &[Self::HandedOver, Self::Lost, Self::ShardEnd, Self::Released];

    /// The name in lower case, for the label of a metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::HandedOver => "handed_over",
            Self::Lost => "lost",
            Self::ShardEnd => "shard_end",
            Self::Released => "released",
        }
    }
}

/// What a worker has requested from its table during some time.
///
/// The units are estimates by the rules of `DynamoDB`, from the sizes of the rows: a unit reads 4 KB, or 8 KB without
/// consistency, and a unit writes 1 KB. On other stores, they compare the load of fleets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableUse {
    /// The rows that the worker has read, one by one or in lists.
    pub rows_read: u64,
    /// Read units.
    pub read_units: u64,
    /// Requests to write one row. Refused requests and heartbeats count, too.
    pub writes: u64,
    /// Write units.
    pub write_units: u64,
}

/// The numbers of a [plan](crate::plan), as one worker computes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Planned {
    /// The workers that may get shards: they stay, and do not wait for a predecessor.
    pub workers: usize,
    /// All shards that a worker can read now. This includes the shards that no worker may get because of the limits of
    /// the workers, and the shards that workers of another library read.
    pub shards: usize,
    /// The shards that the plan assigns to this worker.
    pub wanted: usize,
    /// Whether this plan differs from this worker's last plan. False for the first plan.
    pub has_changed: bool,
}
