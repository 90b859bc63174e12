//! The queue of each key, and the notices to its waiters.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use lease_core::LeaseKey;
use lease_core::store::{Claim, Moment, Nonce, Notice, Notices};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The waiting claims of each key, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    by_key: HashMap<LeaseKey, VecDeque<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    /// The request number of this claim is the largest that has arrived.
    claim: Claim,
    renewed: Moment,
}

impl Queues {
    pub(crate) fn push(&mut self, claim: &Claim, now: Moment) {
        let waiter = Waiter { claim: claim.clone(), renewed: now };
        self.by_key.entry(claim.key.clone()).or_default().push_back(waiter);
    }

    pub(crate) fn renew(&mut self, claim: &Claim, now: Moment) -> bool {
        let queue = self.by_key.get_mut(&claim.key).into_iter().flatten();
        let Some(waiter) = queue.into_iter().find(|waiter| waiter.claim.nonce == claim.nonce)
        else {
            return false;
        };
        waiter.renewed = now;
        waiter.claim.request = waiter.claim.request.max(claim.request);
        true
    }

    pub(crate) fn ahead(&self, claim: &Claim) -> Option<u64> {
        let mut queue = self.by_key.get(&claim.key)?.iter();
        let ahead = queue.position(|waiter| waiter.claim.nonce == claim.nonce)?;
        u64::try_from(ahead).ok()
    }

    pub(crate) fn remove(&mut self, claim: &Claim) {
        self.retain(&claim.key, |waiter| waiter.claim.nonce != claim.nonce);
    }

    /// Removes the claims that were not renewed for their ttl, or whose waiter does not listen.
    pub(crate) fn remove_dead(&mut self, key: &LeaseKey, listeners: &Listeners, now: Moment) {
        let listeners = listeners.lock();
        self.retain(key, |waiter| {
            let is_renewed = now < waiter.renewed + waiter.claim.ttl;
            is_renewed && listeners.contains_key(&waiter.claim.nonce)
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(crate) fn claims(&self, key: &LeaseKey) -> impl Iterator<Item = &Claim> {
        self.by_key.get(key).into_iter().flatten().map(|waiter| &waiter.claim)
    }

    fn retain(&mut self, key: &LeaseKey, keep: impl Fn(&Waiter) -> bool) {
        let Some(queue) = self.by_key.get_mut(key) else { return };
        queue.retain(keep);
        if queue.is_empty() {
            self.by_key.remove(key);
        }
    }
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Listeners(Arc<Mutex<ByNonce>>);

type ByNonce = HashMap<Nonce, (u64, UnboundedSender<Notice>)>;

struct Listening {
    listeners: Listeners,
    nonce: Nonce,
    id: u64,
    notices: UnboundedReceiver<Notice>,
}

impl Listeners {
    pub(crate) fn listen(&self, nonce: Nonce) -> Notices {
        let (notify, notices) = unbounded_channel();
        let mut listeners = self.lock();
        // A waiter that listens again replaces its earlier listener.
        let id = listeners.get(&nonce).map_or(0, |(id, _)| id + 1);
        listeners.insert(nonce, (id, notify));
        let listening = Listening { listeners: self.clone(), nonce, id, notices };
        Notices::new(futures_util::stream::unfold(listening, async |mut listening| {
            let notice = listening.notices.recv().await?;
            Some((notice, listening))
        }))
    }

    pub(crate) fn notify(&self, nonce: Nonce, notice: Notice) {
        if let Some((_, notify)) = self.lock().get(&nonce) {
            // An error means that the waiter was dropped. Its claim then leaves the queue.
            drop(notify.send(notice));
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByNonce> {
        self.0.lock()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = self.listeners.lock();
        if listeners.get(&self.nonce).is_some_and(|(id, _)| *id == self.id) {
            listeners.remove(&self.nonce);
        }
    }
}
