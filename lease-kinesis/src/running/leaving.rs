//! How a worker leaves: its shards go first, then its own row.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};
use tracing::{debug, info};

use super::Running;
use crate::decide::Decision;
use crate::plan::Standing;
use crate::shard_task::Order;
use crate::time::now;

impl Running {
    pub(super) fn begin_to_leave(&mut self) {
        info!(shards = self.reading.len(), "worker leaves");
        let grace = self.worker.settings.grace;
        self.deadline = Some(now() + grace.saturating_sub(last_part(grace)));
        self.comparing.abort_all();
        self.worker.me.standing = Standing::Leaving;
        self.row_is_written = false;
    }

    /// Ends what has not ended, and removes its own row. Takes no longer than the last part of the
    /// grace time, of which shards that are given up as they are have the first half.
    pub(super) async fn leave(&mut self) {
        let last_part = last_part(self.worker.settings.grace);
        let gone = now() + last_part;
        self.out_of_time.cancel();
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(last_part / 2, all_ended).await.is_err() {
            self.tasks.shutdown().await;
        }
        let removed = async {
            if let Some(row) = self.row.take()
                && let Err(cause) = self.worker.settings.table.delete(row.grant()).await
            {
                let error = &cause as &dyn std::error::Error;
                debug!(error, "own row not removed, it runs out");
            }
            self.worker.locker.close().await;
        };
        if timeout_at(gone, removed).await.is_err() {
            debug!("what is given back may not have arrived, it runs out");
        }
        info!("worker ended");
    }

    /// What is left to who leaves and cannot find out who should have what: each is then taken by
    /// the worker that it is planned for.
    pub(super) fn give_all_to_anybody(&self) -> Decision {
        let to = |order: &watch::Sender<Order>| match &*order.borrow() {
            Order::Give(to) => to.clone(),
            Order::Read => None,
        };
        let give = self.reading.iter().map(|(key, order)| (key.clone(), to(order))).collect();
        Decision { give, ..Decision::default() }
    }
}

/// What of `grace` is kept for what is left to be done when the shards should have been handed over.
fn last_part(grace: Duration) -> Duration {
    (grace / 8).min(LONGEST_LAST_PART)
}

const LONGEST_LAST_PART: Duration = Duration::from_secs(2);
