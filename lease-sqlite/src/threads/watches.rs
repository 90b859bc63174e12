//! The waiters for keys that another lessee holds, and the queued claims that wait for their grants.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lease_core::LeaseKey;
use lease_core::store::{Claim, Freed, Nonce, Notice, Notices};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
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
    claims: HashMap<Nonce, Listener>,
}

#[derive(Debug)]
struct Listener {
    id: u64,
    claim: Claim,
    /// `None` if the key had no row when the claim began to listen.
    tenure: Option<Tenure>,
    notify: UnboundedSender<Notice>,
}

/// Dropping this value removes its listener.
struct Listening {
    watches: Watches,
    nonce: Nonce,
    id: u64,
    notices: UnboundedReceiver<Notice>,
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

    /// A claim that listens again replaces its earlier listener.
    pub(crate) fn listen(&self, database: &Database, claim: &Claim) -> Notices {
        let (notify, notices) = unbounded_channel();
        // If the row cannot be read, the next request of the waiter reports the fault.
        let tenure = database.row(&claim.key).ok().flatten().map(|row| row.tenure());
        let mut waiters = self.lock();
        waiters.last_id += 1;
        let (id, nonce) = (waiters.last_id, claim.nonce);
        let listener = Listener { id, claim: claim.clone(), tenure, notify };
        if waiters.claims.insert(nonce, listener).is_none() {
            self.0.count.fetch_add(1, Ordering::SeqCst);
        }
        drop(waiters);
        let listening = Listening { watches: self.clone(), nonce, id, notices };
        Notices::new(futures_util::stream::unfold(listening, async |mut listening| {
            let notice = listening.notices.recv().await?;
            Some((notice, listening))
        }))
    }

    /// Looks at the rows of all waiters, and sends notices and wakes waiters.
    pub(crate) fn look(&self, database: &Database) {
        self.look_for_grants(database);
        self.look_for_releases(database);
    }

    fn look_for_grants(&self, database: &Database) {
        let mut by_key: HashMap<LeaseKey, Vec<(Claim, Option<Tenure>)>> = HashMap::new();
        for Listener { claim, tenure, .. } in self.lock().claims.values() {
            by_key.entry(claim.key.clone()).or_default().push((claim.clone(), *tenure));
        }
        for (key, claims) in by_key {
            let row = database.row(&key);
            for (claim, tenure) in claims {
                let notice = match &row {
                    Ok(Some(row)) => notice(row, &claim, tenure),
                    Ok(None) => None,
                    // The next request of the waiter reports the fault.
                    Err(_fault) => Some(Notice::Missed),
                };
                if let Some(notice) = notice {
                    self.notify(claim.nonce, notice);
                }
            }
        }
    }

    /// The listener is removed, so that each later change does not repeat the notice.
    fn notify(&self, nonce: Nonce, notice: Notice) {
        if let Some(listener) = self.lock().claims.remove(&nonce) {
            self.0.count.fetch_sub(1, Ordering::SeqCst);
            drop(listener.notify.send(notice));
        }
    }

    /// Compares each tenure with the tenure at the start of the watch, because a released key may be held
    /// again.
    fn look_for_releases(&self, database: &Database) {
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
        let mut waiters = self.lock();
        let (all, claims) =
            (std::mem::take(&mut waiters.by_key), std::mem::take(&mut waiters.claims));
        drop(waiters);
        // The end of its notices lets a waiter ask.
        self.0.count.fetch_sub(claims.len(), Ordering::SeqCst);
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

fn notice(row: &Row, claim: &Claim, tenure: Option<Tenure>) -> Option<Notice> {
    if let Some(grant) = row.granted_to(claim) {
        return Some(
            row.attributes().map_or(Notice::Missed, |found| Notice::Granted(grant, found)),
        );
    }
    // The key was reserved since. The waiter has to ask how long the reservation lasts.
    let is_news = row.is_reserved() && tenure != Some(row.tenure());
    is_news.then_some(Notice::Missed)
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

impl Drop for Listening {
    fn drop(&mut self) {
        let mut waiters = self.watches.lock();
        if waiters.claims.get(&self.nonce).is_some_and(|listener| listener.id == self.id) {
            waiters.claims.remove(&self.nonce);
            self.watches.0.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
