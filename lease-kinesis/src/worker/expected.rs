//! Shards that others are about to hand over: this worker is told when one is free.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{LeaseKey, LeaseTable};
use tokio::select;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;
use tracing::debug;

/// What is handed over to this worker next: it is told when that is free.
#[derive(Default)]
pub(crate) struct Expected {
    watches: JoinSet<LeaseKey>,
    keys: BTreeMap<LeaseKey, AbortHandle>,
}

impl Expected {
    /// Awaits `keys`, and no others.
    pub(crate) fn are(&mut self, keys: Vec<LeaseKey>, table: &Arc<dyn LeaseTable>) {
        let wanted: BTreeSet<_> = keys.into_iter().collect();
        self.keys.retain(|key, watch| {
            let kept = wanted.contains(key) && !watch.is_finished();
            if !kept {
                watch.abort();
            }
            kept
        });
        self.include(wanted, table);
    }

    /// Awaits `keys`, too.
    pub(crate) fn include(
        &mut self,
        keys: impl IntoIterator<Item = LeaseKey>,
        table: &Arc<dyn LeaseTable>,
    ) {
        for key in keys {
            if !self.keys.contains_key(&key) {
                let (table, name) = (Arc::clone(table), key.clone());
                let watch = async move {
                    let told = async {
                        match table.watch(&name).await {
                            Ok(freed) => freed.await,
                            Err(_unwatched) => std::future::pending().await,
                        }
                    };
                    select! {
                        // What is told comes sooner than what is found out.
                        biased;
                        () = told => (),
                        () = found_free(&*table, &name) => (),
                    }
                    name
                };
                self.keys.insert(key, self.watches.spawn(watch));
            }
        }
    }

    /// The next that is free; `None` where none is awaited any more.
    pub(crate) async fn next(&mut self) -> Option<LeaseKey> {
        loop {
            if let Ok(key) = self.watches.join_next().await? {
                self.keys.remove(&key);
                return Some(key);
            }
        }
    }
}

/// Waits until nobody holds `key`, by looking: for stores that tell nobody, and lost tellings.
async fn found_free(table: &dyn LeaseTable, key: &LeaseKey) {
    loop {
        sleep(BETWEEN_LOOKS).await;
        match table.read(key).await {
            Ok(Some(row)) if row.holder.is_none() => return,
            // A row that is gone is for the next tick to make out.
            Ok(_) => (),
            Err(cause) => {
                debug!(%key, error = &cause as &dyn Error, "row not read");
            }
        }
    }
}

/// From one look to the next at a shard that is handed over, of which nobody works on the records
/// from the moment at which it is free: one row, for as long as the hand-over takes.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
