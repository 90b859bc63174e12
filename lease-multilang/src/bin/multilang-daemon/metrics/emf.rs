//! Collects metrics under the names of KCL, and prints them in CloudWatch's embedded metric format.
//!
//! The crate `metrics_cloudwatch_embedded` drops all but 100 values of a histogram between two flushes, and keeps the
//! metrics of each shard for ever.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use lease_kinesis::{
    Planned, ReadingEnd, ShardId, ShardName, ShardStatus, SourceErrorKind, TableUse, WorkerHandle,
    WorkerMetrics,
};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use super::documents::{Documents, Fleet, Shard};
use super::target::EmfSettings;
use crate::configuration::start::millis_since_1970;

#[derive(Debug)]
pub(crate) struct Emf {
    namespace: String,
    dimensions: Vec<(String, String)>,
    every: Duration,
    state: Mutex<State>,
}

/// The worker whose values are printed.
#[derive(Debug, Clone)]
pub(crate) struct PrintedWorker {
    pub(crate) name: String,
    pub(crate) handle: WorkerHandle,
}

/// The values since the last print.
#[derive(Debug, Default)]
struct State {
    shards: BTreeMap<ShardId, Shard>,
    fleet: Fleet,
}

impl Emf {
    pub(crate) fn new(settings: &EmfSettings, application: &str) -> Self {
        let namespace = settings.namespace.clone().unwrap_or_else(|| application.to_owned());
        let EmfSettings { dimensions, interval, .. } = settings.clone();
        Self { namespace, dimensions, every: interval, state: Mutex::default() }
    }

    /// Prints until stdout is closed.
    pub(crate) async fn print_for(self: Arc<Self>, worker: PrintedWorker) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if !self.print(&worker).await {
                return;
            }
        }
    }

    /// Returns whether stdout is open. A reader that is slow delays only a thread of its own.
    pub(crate) async fn print(&self, worker: &PrintedWorker) -> bool {
        let lines = self.take_lines(worker);
        let written = spawn_blocking(move || {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush())
        });
        match written.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                warn!(%error, "metrics not printed: stdout is closed");
                false
            }
            Err(_ended) => false,
        }
    }

    /// The lag is that of now, so each print has it, also while the worker does not tick.
    fn take_lines(&self, worker: &PrintedWorker) -> String {
        let read = worker.handle.status().shards;
        let mut state = self.state.lock();
        state.fleet.held = u64::try_from(read.len()).unwrap_or(u64::MAX);
        for shard in read {
            state.shards.entry(shard.shard).or_default().behind = Some(shard.behind);
        }
        let documents = Documents {
            namespace: &self.namespace,
            dimensions: &self.dimensions,
            timestamp: millis_since_1970(),
        };
        let mut lines = String::new();
        for (shard, values) in std::mem::take(&mut state.shards) {
            documents.shard(&mut lines, shard.as_str(), &values);
        }
        documents.fleet(&mut lines, &worker.name, &state.fleet);
        state.fleet.clear();
        lines
    }

    fn shard(&self, name: &ShardName, change: impl FnOnce(&mut Shard)) {
        change(self.state.lock().shards.entry(name.shard.clone()).or_default());
    }
}

// Each method must be reported: a default method would drop its events.
#[deny(clippy::missing_trait_methods)]
impl WorkerMetrics for Emf {
    fn obtained(&self, _shard: &ShardName) {
        self.state.lock().fleet.taken += 1;
    }

    fn ended(&self, _shard: &ShardName, end: ReadingEnd) {
        self.state.lock().fleet.lost += u64::from(end == ReadingEnd::Lost);
    }

    fn planned(&self, plan: &Planned) {
        self.state.lock().fleet.plan = Some(*plan);
    }

    fn stopped(&self) {
        self.state.lock().fleet.plan = None;
    }

    /// KCL has no such metric.
    fn table_used(&self, _used: &TableUse) {}

    /// Each print reads the lag from the worker's status.
    fn behind(&self, _shards: &[ShardStatus]) {}

    fn processed(&self, shard: &ShardName, records: u64, bytes: u64) {
        self.shard(shard, |shard| {
            shard.records += records;
            shard.bytes += bytes;
        });
    }

    fn called(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        self.shard(shard, |shard| shard.process.push(took, is_ok));
    }

    fn checkpointed(&self, shard: &ShardName, took: Duration, is_ok: bool) {
        self.shard(shard, |shard| shard.checkpoint.push(took, is_ok));
    }

    fn read_failed(&self, shard: &ShardName, kind: SourceErrorKind) {
        if kind == SourceErrorKind::ExpiredIterator {
            self.shard(shard, |shard| shard.expired += 1);
        }
    }
}
