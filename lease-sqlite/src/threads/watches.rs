//! The waiters for keys that another lessee holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lease_core::LeaseKey;
use lease_core::store::Freed;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::database::Database;
use crate::error::Fault;
use crate::row::{Row, Tenure};

#[derive(Debug, Default, Clone)]
pub(crate) struct Watches(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiters: Mutex<Waiters>,
    /// A task reads this number without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiters {
    last_id: u64,
    by_key: HashMap<LeaseKey, Vec<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    /// `None` if the key had no row when the watch began.
    tenure: Option<Tenure>,
    wake: oneshot::Sender<()>,
}

/// Dropping this value removes its waiter.
struct Watch {
    watches: Watches,
    key: LeaseKey,
    id: u64,
}

impl Watches {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::SeqCst) == 0
    }

    /// The watch wakes at once if any lessee may obtain the key.
    pub(crate) fn watch(&self, database: &Database, key: &LeaseKey) -> Result<Freed, Fault> {
        let row = database.row(key)?;
        if row.as_ref().is_none_or(Row::is_free) {
            return Ok(Freed::when(std::future::ready(())));
        }
        let (wake, woken) = oneshot::channel();
        let mut waiters = self.lock();
        waiters.last_id += 1;
        let (id, tenure) = (waiters.last_id, row.map(|row| row.tenure()));
        waiters.by_key.entry(key.clone()).or_default().push(Waiter { id, tenure, wake });
        self.0.count.fetch_add(1, Ordering::SeqCst);
        drop(waiters);
        let watch = Watch { watches: self.clone(), key: key.clone(), id };
        Ok(Freed::when(async move {
            // An error means that the store was closed. The waiter tries again in both cases.
            drop(woken.await);
            drop(watch);
        }))
    }

    /// Compares each tenure with the tenure at the start of the watch, because a released key may be held
    /// again.
    pub(crate) fn look(&self, database: &Database) {
        let keys: Vec<_> = self.lock().by_key.keys().cloned().collect();
        for key in keys {
            // If a row cannot be read, its waiters wake, and their next requests report the fault.
            let tenure = database.row(&key).map(|row| row.map(|row| row.tenure()));
            let mut waiters = self.lock();
            let Some(waiting) = waiters.by_key.get_mut(&key) else { continue };
            let is_freed = |waiter: &mut Waiter| {
                tenure.as_ref().map_or(true, |tenure| *tenure != waiter.tenure)
            };
            let woken: Vec<_> = waiting.extract_if(.., is_freed).collect();
            if waiting.is_empty() {
                waiters.by_key.remove(&key);
            }
            drop(waiters);
            self.wake(woken);
        }
    }

    pub(crate) fn wake_all(&self) {
        let all = std::mem::take(&mut self.lock().by_key);
        self.wake(all.into_values().flatten());
    }

    fn wake(&self, waiters: impl IntoIterator<Item = Waiter>) {
        for waiter in waiters {
            self.0.count.fetch_sub(1, Ordering::SeqCst);
            let _ = waiter.wake.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.0.waiters.lock()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut waiters = self.watches.lock();
        if let Some(waiting) = waiters.by_key.get_mut(&self.key) {
            let before = waiting.len();
            waiting.retain(|waiter| waiter.id != self.id);
            self.watches.0.count.fetch_sub(before - waiting.len(), Ordering::SeqCst);
            if waiting.is_empty() {
                waiters.by_key.remove(&self.key);
            }
        }
    }
}
