//! Watches the shards that other workers will hand over to this worker, until each is free.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lease_core::LeaseKey;
use lease_core::store::LeaseTable;
use tokio::select;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;
use tracing::debug;

#[derive(Default)]
pub(crate) struct Expected {
    watches: JoinSet<LeaseKey>,
    keys: BTreeMap<LeaseKey, AbortHandle>,
}

impl Expected {
    /// Stops all other watches.
    pub(crate) fn set(&mut self, keys: Vec<LeaseKey>, table: &Arc<dyn LeaseTable>) {
        let wanted: BTreeSet<_> = keys.into_iter().collect();
        self.keys.retain(|key, watch| {
            let is_watched = wanted.contains(key) && !watch.is_finished();
            if !is_watched {
                watch.abort();
            }
            is_watched
        });
        self.include(wanted, table);
    }

    pub(crate) fn include(
        &mut self,
        keys: impl IntoIterator<Item = LeaseKey>,
        table: &Arc<dyn LeaseTable>,
    ) {
        for key in keys {
            if !self.keys.contains_key(&key) {
                let (table, name) = (Arc::clone(table), key.clone());
                let watch = async move {
                    let notified = async {
                        match table.watch(&name).await {
                            Ok(freed) => freed.await,
                            Err(_unwatched) => std::future::pending().await,
                        }
                    };
                    select! {
                        // The notification usually arrives before the next poll.
                        biased;
                        () = notified => (),
                        () = poll_until_free(&*table, &name) => (),
                    }
                    name
                };
                self.keys.insert(key, self.watches.spawn(watch));
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Option<LeaseKey> {
        loop {
            if let Ok(key) = self.watches.join_next().await? {
                self.keys.remove(&key);
                return Some(key);
            }
        }
    }
}

/// A store may send no notifications, or lose a notification.
async fn poll_until_free(table: &dyn LeaseTable, key: &LeaseKey) {
    loop {
        sleep(POLL_INTERVAL).await;
        match table.read(key).await {
            Ok(Some(row)) if row.holder.is_none() => return,
            Ok(_) => (),
            Err(cause) => {
                debug!(%key, error = &cause as &dyn Error, "row not read");
            }
        }
    }
}

/// The interval is short, because no worker reads a free shard. A poll reads one row.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
