//! Notifies waiters when a key becomes free.

use std::collections::HashMap;
use std::sync::Arc;

use lease_core::LeaseKey;
use lease_core::store::Freed;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

#[derive(Debug, Default, Clone)]
pub(crate) struct Watches(Arc<Mutex<Waiters>>);

#[derive(Debug, Default)]
struct Waiters {
    last_id: u64,
    by_key: HashMap<LeaseKey, Vec<(u64, oneshot::Sender<()>)>>,
}

/// Removes its waiter when dropped.
struct Watch {
    watches: Watches,
    key: LeaseKey,
    id: u64,
}

impl Watches {
    pub(crate) fn watch(&self, key: &LeaseKey) -> Freed {
        let (notify, notified) = oneshot::channel();
        let mut waiters = self.lock();
        waiters.last_id += 1;
        let id = waiters.last_id;
        waiters.by_key.entry(key.clone()).or_default().push((id, notify));
        let watch = Watch { watches: self.clone(), key: key.clone(), id };
        Freed::when(async move {
            // An error means that the store was dropped. The waiter tries again in both cases.
            drop(notified.await);
            drop(watch);
        })
    }

    pub(crate) fn notify(&self, key: &LeaseKey) {
        let waiters = self.lock().by_key.remove(key);
        for (_, notify) in waiters.into_iter().flatten() {
            // An error means that the waiter was dropped.
            let _ = notify.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.0.lock()
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
        let freed = watches.watch(&key);
        watches.notify(&key);
        freed.await;

        assert!(watches.lock().by_key.is_empty());
    }
}
