//! Who waits for which key to be freed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{Freed, LeaseKey};
use tokio::sync::oneshot;

#[derive(Debug, Default, Clone)]
pub(crate) struct Watches(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    last_id: u64,
    keys: HashMap<LeaseKey, Vec<(u64, oneshot::Sender<()>)>>,
}

/// Takes its watch off the list when dropped.
struct Watch {
    watches: Watches,
    key: LeaseKey,
    id: u64,
}

impl Watches {
    pub(crate) fn watch(&self, key: &LeaseKey) -> Freed {
        let (wake, woken) = oneshot::channel();
        let mut waiting = self.waiting();
        waiting.last_id += 1;
        let id = waiting.last_id;
        waiting.keys.entry(key.clone()).or_default().push((id, wake));
        let watch = Watch { watches: self.clone(), key: key.clone(), id };
        Freed::when(async move {
            // Whether it was woken or dropped by the store: time to look again.
            drop(woken.await);
            drop(watch);
        })
    }

    pub(crate) fn wake(&self, key: &LeaseKey) {
        let woken = self.waiting().keys.remove(key);
        for (_, wake) in woken.into_iter().flatten() {
            // Who no longer waits needs no waking.
            let _ = wake.send(());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut waiting = self.watches.waiting();
        if let Some(watches) = waiting.keys.get_mut(&self.key) {
            watches.retain(|(id, _)| *id != self.id);
            if watches.is_empty() {
                waiting.keys.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_leaves_nothing_behind() {
        let watches = Watches::default();
        let key: LeaseKey = "job".parse().unwrap();

        drop(watches.watch(&key));
        let woken = watches.watch(&key);
        watches.wake(&key);
        woken.await;

        assert!(watches.waiting().keys.is_empty());
    }
}
