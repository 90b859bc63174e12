//! Claims shards for a running worker, starts their tasks, and handles the ends of the tasks.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::store::{LeaseRecord, LeaseTable, within};
use lease_core::{Attempt, Lease, LeaseKey, StoreError};
use tokio::sync::watch;
use tokio::task::JoinError;
use tracing::{Instrument, debug, error, info, warn};

use super::Running;
use crate::log_throttle::LogLevel;
use crate::names::RowName;
use crate::position::Position;
use crate::status::ShardStatus;
use crate::table::row::{self, ShardRow};
use crate::time::now;
use crate::worker::shard_task::{Order, ShardTask, TaskEnd};

impl Running {
    pub(super) async fn claim(&mut self, mut keys: Vec<LeaseKey>) {
        if self.deadline.is_some() {
            return;
        }
        keys.retain(|key| !self.missing.is_delayed(key, now()));
        let attempts = keys.into_iter().map(|key| {
            let (locker, table) = (self.worker.locker.clone(), &self.worker.settings.table);
            let parents = self.unlisted_parents.get(&key).cloned().unwrap_or_default();
            let limit = self.worker.settings.options.request_timeout();
            async move {
                let attempt = match have_ended(&**table, &parents, limit).await {
                    Ok(true) => Some(locker.obtain(&key).await),
                    Ok(false) => None,
                    Err(cause) => Some(Err(cause)),
                };
                (key, attempt)
            }
        });
        let mut attempts = futures_util::stream::iter(attempts).buffer_unordered(CONCURRENT_CLAIMS);
        let (mut obtained, mut refused, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
        while let Some((key, attempt)) = attempts.next().await {
            match attempt {
                None => debug!(%key, "a parent of the shard has not been read to its end"),
                Some(Ok(Attempt::Obtained(lease))) => obtained.push(lease),
                Some(Ok(Attempt::Held(_))) => refused.push(key),
                Some(Err(cause)) => {
                    warn!(%key, error = &cause as &dyn std::error::Error, "shard not obtained");
                    unclear.push(key);
                }
            }
        }
        drop(attempts);
        for key in refused {
            self.note(|view, _| view.refused(key));
        }
        for key in unclear.iter().cloned() {
            self.note(|view, _| view.unclear(key));
        }
        // A watch reports a free shard before the next tick.
        self.expected.include(unclear, &self.worker.settings.table);
        for lease in obtained {
            let key = lease.key().clone();
            self.note(|view, worker| view.obtained(worker, &key));
            self.begin_to_read(lease);
            if !self.reading.contains_key(&key) {
                self.note(|view, worker| view.gave(worker, &key));
            }
        }
    }

    fn begin_to_read(&mut self, lease: Lease) {
        let settings = &self.worker.settings;
        let key = lease.key().clone();
        let Some(RowName::Shard(name)) = settings.application.row(&key) else { return };
        let attributes = lease.attributes().clone();
        let record = LeaseRecord::new(key.clone(), None, Some(lease.token()), attributes);
        let row = match ShardRow::read(name, record) {
            // Another worker read the shard to its end after the listing.
            Ok(row) if row.checkpoint == Position::ShardEnd => return,
            Ok(row) => row,
            // A claim creates an empty row if the row was removed after the listing.
            Err(cause) => {
                let error = &cause as &dyn std::error::Error;
                return warn!(%key, error, "row cannot be read, its shard is skipped");
            }
        };
        let Some(source) = self.worker.sync.source(row.stream.as_ref()) else { return };
        let token = lease.token();
        info!(shard = %row.shard, %token, checkpoint = %row.checkpoint, "shard obtained");
        if settings.initial.is_overruled_by(&row.checkpoint, (settings.wall_clock)()) {
            warn!(
                shard = %row.shard, row = %row.checkpoint, configured = ?settings.initial,
                "the row of an unread shard has another initial position: to use the configured one, \
                stop all workers, delete the row, and start them again"
            );
        }
        let entry = self.worker.status.insert(key.clone(), ShardStatus::new(&row, token));
        let (order, orders) = watch::channel(Order::Read);
        let lease = Arc::new(lease);
        self.leases.insert(key.clone(), Arc::downgrade(&lease));
        let task = ShardTask {
            settings: Arc::clone(settings),
            factory: Arc::clone(&self.worker.factory),
            sync: Arc::clone(&self.worker.sync),
            lease,
            locker: self.worker.locker.clone(),
            row,
            source,
            entry,
            orders,
            out_of_time: self.out_of_time.clone(),
        };
        self.reading.insert(key.clone(), order);
        let run = AssertUnwindSafe(task.run()).catch_unwind();
        self.tasks.spawn(async move { (key, run.await.ok()) }.in_current_span());
    }

    /// Returns whether to tick at once.
    pub(super) fn has_ended(
        &mut self,
        ended: Result<(LeaseKey, Option<TaskEnd>), JoinError>,
    ) -> bool {
        let Ok((key, ended)) = ended else { return false };
        self.reading.remove(&key);
        self.leases.remove(&key);
        self.worker.status.remove(&key);
        self.note(|view, worker| view.gave(worker, &key));
        match ended {
            Some(TaskEnd::Lost | TaskEnd::Given | TaskEnd::GivenUp) => false,
            // The next tick can claim the shard's children.
            Some(TaskEnd::ShardEnd { children, lease }) => {
                if self.coexistence.is_some() {
                    self.worker.sync.ended().keep(lease);
                }
                self.report_rows_of(&key, children);
                self.is_reshaped = true;
                true
            }
            // The next sync removes the shard's row.
            Some(TaskEnd::Missing) => {
                self.synchronised = None;
                let settings = &self.worker.settings;
                let length = |times| settings.backoff(times);
                match self.missing.is_missing(key.clone(), now(), length) {
                    LogLevel::Warn => warn!(%key, "{MISSING}"),
                    LogLevel::WarnThenRarely => {
                        warn!(%key, "{MISSING}; further attempts are logged rarely");
                    }
                    LogLevel::Debug => debug!(%key, "{MISSING}"),
                }
                false
            }
            Some(TaskEnd::StopWorker(cause)) => {
                error!(%key, error = &*cause as &dyn std::error::Error, "processor stopped the worker");
                self.stopped_by.get_or_insert(cause);
                self.worker.stopping.cancel();
                false
            }
            None => {
                error!(%key, "shard task panicked: this is a bug of lease-kinesis");
                false
            }
        }
    }
}

/// Waits for at most `limit` per shard, because the worker does nothing else during this time.
async fn have_ended(
    table: &dyn LeaseTable,
    shards: &[LeaseKey],
    limit: Duration,
) -> Result<bool, StoreError> {
    for key in shards {
        let row = within(limit, table.read(key)).await?;
        if row.is_some_and(|row| row::position(&row).ok() != Some(Position::ShardEnd)) {
            return Ok(false);
        }
    }
    Ok(true)
}

const MISSING: &str = "the stream no longer has the shard";

const CONCURRENT_CLAIMS: usize = 32;
