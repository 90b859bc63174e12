//! A worker's shards: from a lease to the task that reads, to what became of that.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use lease_core::{Attempt, Lease, LeaseKey, LeaseRecord, LeaseTable, StoreError};
use tokio::sync::watch;
use tokio::task::JoinError;
use tracing::{Instrument, debug, error, info, warn};

use super::Running;
use crate::board::ShardStatus;
use crate::names::RowName;
use crate::position::Position;
use crate::repeats::Telling;
use crate::row::{self, ShardRow};
use crate::shard_task::{Ended, Order, ShardTask};
use crate::time::now;

impl Running {
    /// Obtains `keys`, as far as they are free and do not rest, and begins to read.
    pub(super) async fn claim(&mut self, mut keys: Vec<LeaseKey>) {
        if self.deadline.is_some() {
            return;
        }
        keys.retain(|key| !self.resting.rests(key, now()));
        let attempts = keys.into_iter().map(|key| {
            let (locker, table) = (self.worker.locker.clone(), &self.worker.settings.table);
            let parents = self.unlisted_parents.get(&key).cloned().unwrap_or_default();
            async move {
                let attempt = match have_ended(&**table, &parents).await {
                    Ok(true) => Some(locker.obtain(&key).await),
                    Ok(false) => None,
                    Err(cause) => Some(Err(cause)),
                };
                (key, attempt)
            }
        });
        let mut attempts = futures_util::stream::iter(attempts).buffer_unordered(CLAIMS_AT_ONCE);
        let (mut obtained, mut unclear) = (Vec::new(), Vec::new());
        while let Some((key, attempt)) = attempts.next().await {
            match attempt {
                None => debug!(%key, "a parent that was not listed is not read to its end"),
                Some(Ok(Attempt::Obtained(lease))) => obtained.push(lease),
                // Another was faster, or it is kept for somebody. The next tick tells.
                Some(Ok(Attempt::Held(_))) => (),
                Some(Err(cause)) => {
                    warn!(%key, error = &cause as &dyn std::error::Error, "shard not obtained");
                    unclear.push(key);
                }
            }
        }
        drop(attempts);
        // They are looked at again before the next tick.
        self.expected.include(unclear, &self.worker.settings.table);
        for lease in obtained {
            self.begin_to_read(lease);
        }
    }

    fn begin_to_read(&mut self, lease: Lease) {
        let settings = &self.worker.settings;
        let key = lease.key().clone();
        let Some(RowName::Shard(name)) = settings.application.row(&key) else { return };
        let attributes = lease.attributes().clone();
        let record = LeaseRecord::new(key.clone(), None, Some(lease.token()), attributes);
        let row = match ShardRow::read(name, record) {
            // Read to its end meanwhile, or removed: the lease made a row anew, with nothing on it.
            Ok(row) if row.checkpoint == Position::ShardEnd => return,
            Ok(row) => row,
            Err(cause) => {
                let error = &cause as &dyn std::error::Error;
                return warn!(%key, error, "row not understood, its shard is left alone");
            }
        };
        let Some(source) = self.worker.sync.source(row.stream.as_ref()) else { return };
        let token = lease.token();
        info!(shard = %row.shard, %token, checkpoint = %row.checkpoint, "shard obtained");
        if settings.initial.is_overruled_by(&row.checkpoint, (settings.wall_clock)()) {
            warn!(
                shard = %row.shard, row = %row.checkpoint, configured = ?settings.initial,
                "nothing was read of this shard yet, and its row says where it is begun with: for \
                 what is configured now, stop all workers, delete the row, and start them again"
            );
        }
        let entry = self.worker.board.enter(key.clone(), ShardStatus::new(&row, token));
        let (order, orders) = watch::channel(Order::Read);
        let task = ShardTask {
            settings: Arc::clone(settings),
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

    /// A shard is read no longer; says whether to look at the table at once.
    pub(super) fn has_ended(
        &mut self,
        ended: Result<(LeaseKey, Option<Ended>), JoinError>,
    ) -> bool {
        let Ok((key, ended)) = ended else { return false };
        self.reading.remove(&key);
        self.worker.board.leave(&key);
        match ended {
            Some(Ended::Lost | Ended::Given | Ended::GivenUp) => false,
            // What it became is free.
            Some(Ended::ShardEnd) => {
                self.is_reshaped = true;
                true
            }
            // Its row goes with the next look at the stream, which is due.
            Some(Ended::Gone) => {
                self.synchronised = None;
                let settings = &self.worker.settings;
                let length = |times| settings.backoff(times);
                match self.resting.is_gone(key.clone(), now(), length) {
                    Telling::Aloud => warn!(%key, "{GONE}"),
                    Telling::AloudThenSeldom => {
                        warn!(%key, "{GONE}; it is looked for on, and told seldom");
                    }
                    Telling::Quietly => debug!(%key, "{GONE}"),
                }
                false
            }
            Some(Ended::StopWorker(cause)) => {
                error!(%key, error = &*cause as &dyn std::error::Error, "a processor stops the worker");
                self.stopped_by.get_or_insert(cause);
                self.worker.stopping.cancel();
                false
            }
            None => {
                error!(%key, "reading a shard panicked: this is a bug of this library");
                false
            }
        }
    }
}

/// Whether none of these shards has anything left to be read.
async fn have_ended(table: &dyn LeaseTable, shards: &[LeaseKey]) -> Result<bool, StoreError> {
    for key in shards {
        let row = table.read(key).await?;
        if row.is_some_and(|row| row::position(&row).ok() != Some(Position::ShardEnd)) {
            return Ok(false);
        }
    }
    Ok(true)
}

const GONE: &str = "the stream has no such shard any more";

const CLAIMS_AT_ONCE: usize = 32;
