//! Metrics whose panics do not reach the worker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::error;

use super::{Planned, ReadingEnd, TableUse, WorkerMetrics};
use crate::names::ShardName;
use crate::source::SourceErrorKind;
use crate::status::shard::ShardStatus;

/// The application's metrics, if it has any. A panic in a method ends no task of the worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guarded(pub(crate) Option<Arc<dyn WorkerMetrics>>);

impl Guarded {
    /// Without metrics, the worker computes no values for them.
    pub(crate) fn are_read(&self) -> bool {
        self.0.is_some()
    }

    fn count(&self, call: &'static str, count: impl FnOnce(&dyn WorkerMetrics)) {
        let Some(metrics) = &self.0 else { return };
        if catch_unwind(AssertUnwindSafe(|| count(&**metrics))).is_err() {
            error!(call, "metrics panicked");
        }
    }
}

// Each method must be forwarded: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl WorkerMetrics for Guarded {
    fn obtained(&self, shard: &ShardName) {
        self.count("obtained", |metrics| metrics.obtained(shard));
    }

    fn ended(&self, shard: &ShardName, end: ReadingEnd) {
        self.count("ended", |metrics| metrics.ended(shard, end));
    }

    fn planned(&self, plan: &Planned) {
        self.count("planned", |metrics| metrics.planned(plan));
    }

    fn stopped(&self) {
        self.count("stopped", WorkerMetrics::stopped);
    }

    fn table_used(&self, used: &TableUse) {
        self.count("table_used", |metrics| metrics.table_used(used));
    }

    fn behind(&self, shards: &[ShardStatus]) {
        self.count("behind", |metrics| metrics.behind(shards));
    }

    fn processed(&self, shard: &ShardName, records: u64, bytes: u64) {
        self.count("processed", |metrics| metrics.processed(shard, records, bytes));
    }

    fn called(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        self.count("called", |metrics| metrics.called(shard, took, is_ok));
    }

    fn checkpointed(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        self.count("checkpointed", |metrics| metrics.checkpointed(shard, took, is_ok));
    }

    fn read_failed(&self, shard: &ShardName, kind: SourceErrorKind) {
        self.count("read_failed", |metrics| metrics.read_failed(shard, kind));
    }
}
