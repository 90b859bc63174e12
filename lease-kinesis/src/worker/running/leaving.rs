//! Stops a worker: hands over its shards, then removes its own row.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{StoreError, Written};
use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};
use tracing::{debug, info};

use super::Running;
use crate::plan::MemberState;
use crate::plan::decide::Decision;
use crate::plan::fleet;
use crate::time::now;
use crate::worker::shard_task::{Order, free};

impl Running {
    pub(super) fn begin_to_leave(&mut self) {
        info!(shards = self.reading.len(), "worker stops");
        let grace = self.worker.settings.grace;
        self.deadline = Some(now() + grace.saturating_sub(last_part(grace)));
        self.comparing.abort_all();
        self.worker.me.state = MemberState::Leaving;
        self.row_is_written = false;
        self.note(|view, _| view.leaves());
    }

    /// Takes at most the last part of the grace time. The tasks may use the first half of this part.
    pub(super) async fn leave(&mut self) {
        let last_part = last_part(self.worker.settings.grace);
        let gone = now() + last_part;
        self.out_of_time.cancel();
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(last_part / 2, all_ended).await.is_err() {
            self.tasks.shutdown().await;
        }
        let freed = async {
            if let Err(cause) = self.free_what_is_reserved().await {
                let error = &cause as &dyn std::error::Error;
                debug!(error, "reservations for this worker not freed, they expire");
            }
        };
        // At least a quarter of the last part remains for the worker's own row.
        if timeout(last_part / 4, freed).await.is_err() {
            debug!("reservations for this worker may not have been freed, they expire");
        }
        self.worker.sync.ended().release_all();
        let removed = async {
            if let Some(row) = self.row.take()
                && let Err(cause) = row.delete(Arc::clone(&self.worker.settings.table)).await
            {
                let error = &cause as &dyn std::error::Error;
                debug!(error, "own row not removed, it expires");
            }
            self.worker.locker.close().await;
        };
        if timeout_at(gone, removed).await.is_err() {
            debug!("leases may not have been released, they expire");
        }
        info!("worker ended");
    }

    /// The worker writes `leaving` to its row before it lists the reserved rows. A worker that hands over a
    /// shard later reads `leaving`, and frees the shard itself.
    async fn free_what_is_reserved(&mut self) -> Result<(), StoreError> {
        let Self { worker, row, row_is_written, .. } = self;
        let (settings, me) = (&worker.settings, &worker.me);
        let Some(row) = row.as_ref().filter(|row| row.is_held()) else { return Ok(()) };
        if !*row_is_written {
            let written = row.update(&*settings.table, &fleet::change(me)).await?;
            *row_is_written = written == Written::Applied;
        }
        let prefix = settings.application.prefix();
        let mut records = settings.table.list(&prefix);
        let mut reserved = Vec::new();
        while let Some(record) = records.next().await {
            if let Ok(record) = record
                && crate::table::row::is_reserved_for(&record, &me.name)
            {
                reserved.push(record.key);
            }
        }
        drop(records);
        let freeing = reserved.into_iter().map(|key| {
            let locker = worker.locker.clone();
            async move { free(&locker, &key).await }
        });
        futures_util::stream::iter(freeing).buffer_unordered(AT_ONCE).collect::<()>().await;
        Ok(())
    }

    /// Hand-overs that have started keep their target. The worker releases its other shards.
    pub(super) fn release_all_shards(&self) -> Decision {
        let to = |order: &watch::Sender<Order>| match &*order.borrow() {
            Order::Give(to) => to.clone(),
            Order::Read => None,
        };
        let give = self.reading.iter().map(|(key, order)| (key.clone(), to(order))).collect();
        Decision { give, ..Decision::default() }
    }
}

fn last_part(grace: Duration) -> Duration {
    (grace / 8).min(LONGEST_LAST_PART)
}

const AT_ONCE: usize = 32;

const LONGEST_LAST_PART: Duration = Duration::from_secs(2);
