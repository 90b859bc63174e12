//! The status of a worker, and in `shard` that of a shard that the worker reads.

pub(crate) mod shard;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::LeaseTable;
use lease_core::{LeaseKey, Lessee};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::metrics::guarded::Guarded;
use crate::metrics::{Planned, ReadingEnd, WorkerMetrics};
use crate::names::ShardName;
use crate::plan::{Member, eligible};
use crate::position::Position;
use crate::record::Batch;
use crate::source::SourceErrorKind;
use crate::table::metered::{Meter, MeteredTable};
use crate::time::now;

pub use self::shard::ShardStatus;

/// The status of a worker.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Status {
    /// The shards that the worker reads now.
    pub shards: Vec<ShardStatus>,
    /// The numbers of events since the worker started.
    pub counters: Counters,
}

/// The numbers of events since a worker started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Shards that the worker obtained.
    pub obtained: u64,
    /// Shards that the worker handed over to another worker.
    pub handed_over: u64,
    /// Shards whose lease the worker lost.
    pub lost: u64,
    /// Shards that the worker read to their end.
    pub ended: u64,
    /// Records that were processed.
    pub records: u64,
    /// Records that were delivered again after a failed batch or a restarted processor. Deliveries by other
    /// workers do not count.
    pub replayed: u64,
    /// Records of batches that a processor skipped.
    pub skipped: u64,
    /// Batches that failed.
    pub failed_batches: u64,
    /// Processors that were replaced after a failure.
    pub restarts: u64,
    /// Listings of the table.
    pub ticks: u64,
    /// Rows that those listings read.
    pub rows_read: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct StatusRegistry {
    state: Arc<Mutex<State>>,
    metrics: Guarded,
    meter: Arc<Meter>,
}

#[derive(Debug, Default)]
struct State {
    shards: BTreeMap<LeaseKey, TrackedShard>,
    counters: Counters,
    /// A hash of the last plan.
    plan: Option<u64>,
}

#[derive(Debug)]
struct TrackedShard {
    status: ShardStatus,
    checkpointed: Instant,
    read: Instant,
    name: Arc<ShardName>,
    end: ReadingEnd,
}

#[derive(Debug, Clone)]
pub(crate) struct StatusEntry {
    registry: StatusRegistry,
    key: LeaseKey,
    name: Arc<ShardName>,
}

/// A worker that runs. Reports the end of the worker, and of its remaining shards, also if the worker is dropped.
#[derive(Debug)]
pub(crate) struct OpenWorker(StatusRegistry);

// No method calls the metrics while it holds the lock: the metrics may read the status.
impl StatusRegistry {
    pub(crate) fn new(metrics: Option<Arc<dyn WorkerMetrics>>) -> Self {
        Self { metrics: Guarded(metrics), ..Self::default() }
    }

    /// Counts the requests to `table`, if metrics receive the numbers.
    pub(crate) fn meter(&self, table: Arc<dyn LeaseTable>) -> Arc<dyn LeaseTable> {
        if !self.metrics.are_read() {
            return table;
        }
        Arc::new(MeteredTable::new(table, Arc::clone(&self.meter)))
    }

    pub(crate) fn report_table_use(&self) {
        if self.metrics.are_read() {
            self.metrics.table_used(&self.meter.take());
        }
    }

    pub(crate) fn open(&self) -> OpenWorker {
        OpenWorker(self.clone())
    }

    pub(crate) fn report_behind(&self) {
        if self.metrics.are_read() {
            self.metrics.behind(&self.status().shards);
        }
    }

    /// `shards` counts all shards. This includes the shards that the plan assigns to no worker.
    pub(crate) fn planned(
        &self,
        shards: usize,
        members: &[Member],
        planned: &BTreeMap<LeaseKey, Lessee>,
        me: &Lessee,
    ) {
        if !self.metrics.are_read() {
            return;
        }
        let mut hasher = DefaultHasher::new();
        planned.hash(&mut hasher);
        let last = self.state().plan.replace(hasher.finish());
        let plan = Planned {
            workers: eligible(members).len(),
            shards,
            wanted: planned.values().filter(|worker| *worker == me).count(),
            has_changed: last.is_some_and(|last| last != hasher.finish()),
        };
        self.metrics.planned(&plan);
    }

    pub(crate) fn status(&self) -> Status {
        let state = self.state();
        let aged = |shard: &TrackedShard| {
            let unread = shard.read.elapsed();
            let more = if unread < RECENT_READ { Duration::ZERO } else { unread };
            ShardStatus {
                checkpoint_age: shard.checkpointed.elapsed(),
                behind: shard.status.behind + more,
                ..shard.status.clone()
            }
        };
        Status { shards: state.shards.values().map(aged).collect(), counters: state.counters }
    }

    pub(crate) fn ticked(&self, rows: usize) {
        let counters = &mut self.state().counters;
        counters.ticks += 1;
        counters.rows_read += count(rows);
    }

    pub(crate) fn insert(&self, key: LeaseKey, status: ShardStatus) -> StatusEntry {
        let name = Arc::new(status.name());
        let (read, end) = (now(), ReadingEnd::Released);
        let tracked =
            TrackedShard { status, checkpointed: read, read, name: Arc::clone(&name), end };
        let mut state = self.state();
        state.counters.obtained += 1;
        state.shards.insert(key.clone(), tracked);
        drop(state);
        self.metrics.obtained(&name);
        StatusEntry { registry: self.clone(), key, name }
    }

    pub(crate) fn remove(&self, key: &LeaseKey) {
        let removed = self.state().shards.remove(key);
        if let Some(TrackedShard { name, end, .. }) = removed {
            self.metrics.ended(&name, end);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl StatusEntry {
    pub(crate) fn behind(&self, behind: Duration) {
        self.shard(|shard| {
            shard.status.behind = behind;
            shard.read = now();
        });
    }

    pub(crate) fn checkpointed(&self, position: &Position) {
        self.shard(|shard| {
            shard.status.checkpoint = position.clone();
            shard.checkpointed = now();
        });
    }

    pub(crate) fn since_checkpoint(&self) -> Duration {
        let state = self.registry.state();
        state.shards.get(&self.key).map_or(Duration::ZERO, |shard| shard.checkpointed.elapsed())
    }

    pub(crate) fn worked(&self, records: usize, bytes: usize) {
        let records = count(records);
        self.count(|counters| counters.records += records);
        if records > 0 {
            self.registry.metrics.processed(&self.name, records, count(bytes));
        }
    }

    /// The call of a processor began at `start`.
    pub(crate) fn called(&self, start: Instant, is_ok: bool) {
        self.registry.metrics.called(&self.name, start.elapsed(), is_ok);
    }

    /// The write of a checkpoint began at `start`.
    pub(crate) fn checkpoint_answered(&self, start: Instant, is_ok: bool) {
        self.registry.metrics.checkpointed(&self.name, start.elapsed(), is_ok);
    }

    pub(crate) fn read_failed(&self, kind: SourceErrorKind) {
        self.registry.metrics.read_failed(&self.name, kind);
    }

    pub(crate) fn skipped(&self, batch: &Batch) {
        self.count(|counters| counters.skipped += count(batch.records.len()));
    }

    pub(crate) fn failed(&self, batch: &Batch) {
        self.count(|counters| {
            counters.failed_batches += 1;
            counters.replayed += count(batch.records.len());
        });
    }

    pub(crate) fn restarted(&self) {
        self.count(|counters| counters.restarts += 1);
    }

    pub(crate) fn handed_over(&self) {
        self.count(|counters| counters.handed_over += 1);
        self.shard(|shard| shard.end = ReadingEnd::HandedOver);
    }

    pub(crate) fn lost(&self) {
        self.count(|counters| counters.lost += 1);
        self.shard(|shard| shard.end = ReadingEnd::Lost);
    }

    pub(crate) fn ended(&self) {
        self.count(|counters| counters.ended += 1);
        self.shard(|shard| shard.end = ReadingEnd::ShardEnd);
    }

    fn shard(&self, change: impl FnOnce(&mut TrackedShard)) {
        if let Some(shard) = self.registry.state().shards.get_mut(&self.key) {
            change(shard);
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.registry.state().counters);
    }
}

impl Drop for OpenWorker {
    fn drop(&mut self) {
        let Self(registry) = self;
        let keys: Vec<_> = registry.state().shards.keys().cloned().collect();
        for key in keys {
            registry.remove(&key);
        }
        registry.report_behind();
        registry.report_table_use();
        registry.metrics.stopped();
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A stream without new records pushes every five seconds.
const RECENT_READ: Duration = Duration::from_secs(10);
