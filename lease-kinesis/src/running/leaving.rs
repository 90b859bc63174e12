//! How a worker leaves: its shards go first, then its own row.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, info};

use super::Running;
use crate::decide::Decision;
use crate::plan::Standing;
use crate::shard_task::Order;
use crate::time::now;

impl Running {
    pub(super) fn begin_to_leave(&mut self) {
        info!(shards = self.reading.len(), "worker leaves");
        self.deadline = Some(now() + self.worker.settings.grace);
        self.comparing.abort_all();
        self.worker.me.standing = Standing::Leaving;
        self.row_is_written = false;
    }

    pub(super) async fn leave(mut self) {
        self.out_of_time.cancel();
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(FAREWELL, all_ended).await.is_err() {
            self.tasks.shutdown().await;
        }
        if let Some(row) = self.row.take() {
            let deleted = self.worker.settings.table.delete(row.grant());
            if let Ok(Err(cause)) = timeout(FAREWELL, deleted).await {
                let error = &cause as &dyn std::error::Error;
                debug!(error, "own row not removed, it runs out");
            }
        }
        drop(timeout(FAREWELL, self.worker.locker.close()).await);
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

/// For what is left to be done when the time is over.
const FAREWELL: Duration = Duration::from_secs(2);
