//! Notifies waiters when a key becomes free.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream;
use lease_core::LeaseKey;
use lease_core::store::{Change, Freed};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[derive(Debug, Default, Clone)]
pub(crate) struct Watches(Arc<Mutex<Waiters>>);

#[derive(Debug, Default)]
struct Waiters {
    last_id: u64,
    by_key: HashMap<LeaseKey, Vec<(u64, UnboundedSender<Change>)>>,
}

struct Watch {
    watches: Watches,
    key: LeaseKey,
    id: u64,
}

impl Watches {
    pub(crate) fn watch(&self, key: &LeaseKey) -> Freed {
        let (notify, changes) = unbounded_channel();
        let mut waiters = self.lock();
        waiters.last_id += 1;
        let id = waiters.last_id;
        waiters.by_key.entry(key.clone()).or_default().push((id, notify));
        let watch = Watch { watches: self.clone(), key: key.clone(), id };
        // The stream owns the guard, so dropping the stream ends the watch.
        Freed::changes(stream::unfold((changes, watch), |(mut changes, watch)| async move {
            Some((changes.recv().await?, (changes, watch)))
        }))
    }

    /// Call this and [`taken`](Self::taken) under the records' lock, so that the waiters receive the
    /// changes in order.
    pub(crate) fn freed(&self, key: &LeaseKey) {
        let waiters = self.lock();
        let Some(waiters) = waiters.by_key.get(key) else { return };
        let watches = Some(waiters.len() as u64);
        tell(waiters, Change::Freed { watches });
    }

    pub(crate) fn taken(&self, key: &LeaseKey) {
        if let Some(waiters) = self.lock().by_key.get(key) {
            tell(waiters, Change::Taken);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.0.lock()
    }
}

fn tell(waiters: &[(u64, UnboundedSender<Change>)], change: Change) {
    for (_, notify) in waiters {
        // An error means that the waiter was dropped.
        let _ = notify.send(change);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut waiters = self.watches.lock();
        if let Some(watches) = waiters.by_key.get_mut(&self.key) {
            watches.retain(|(id, _)| *id != self.id);
            if watches.is_empty() {
                waiters.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ended_watches_leave_no_waiter() {
        let watches = Watches::default();
        let key: LeaseKey = "job".parse().unwrap();

        drop(watches.watch(&key));
        let mut freed = watches.watch(&key);
        watches.freed(&key);
        assert_eq!(freed.next().await, Change::Freed { watches: Some(1) });
        drop(freed);

        assert!(watches.lock().by_key.is_empty());
    }
}
