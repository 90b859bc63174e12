//! The grants of queued claims, as the server publishes them on one channel per client.

use std::collections::HashMap;
use std::sync::Arc;

use lease_core::Attributes;
use lease_core::FencingToken;
use lease_core::store::{BootClock, Claim, Clock, Moment, Nonce, Notice, RequestNumber};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::scripts::nonce_text;

#[derive(Debug)]
pub(crate) struct Grants {
    channel: String,
    clock: BootClock,
    late: UnboundedSender<LateGrant>,
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    last_id: u64,
    listeners: HashMap<String, Listener>,
    /// A server may grant a late request of such a claim until the given time.
    left: HashMap<String, Moment>,
    /// A late request of such a claim may join the queue again after its lease was released.
    waited: HashMap<String, Moment>,
    purge_at: usize,
    late: Option<LateGrants>,
}

#[derive(Debug)]
struct Listener {
    id: u64,
    claim: Claim,
    notify: UnboundedSender<Notice>,
}

#[derive(Debug)]
pub(crate) struct LateGrant {
    pub(crate) nonce: String,
    pub(crate) lease: String,
}

pub(crate) type LateGrants = UnboundedReceiver<LateGrant>;

#[derive(Debug)]
pub(crate) struct Listening {
    grants: Arc<Grants>,
    nonce: String,
    id: u64,
    notices: UnboundedReceiver<Notice>,
}

impl Grants {
    pub(crate) fn new(channel: String) -> Self {
        let (late, lates) = unbounded_channel();
        let shared = Shared {
            last_id: 0,
            listeners: HashMap::new(),
            left: HashMap::new(),
            waited: HashMap::new(),
            purge_at: MIN_PURGE_AT,
            late: Some(lates),
        };
        Self { channel, clock: BootClock::new(), late, shared: Mutex::new(shared) }
    }

    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// Only the first caller gets the receiver.
    pub(crate) fn take_late(&self) -> Option<LateGrants> {
        self.shared().late.take()
    }

    pub(crate) fn listen(self: &Arc<Self>, claim: &Claim) -> Listening {
        let (notify, notices) = unbounded_channel();
        let nonce = nonce_text(claim.nonce);
        let now = self.clock.now();
        let mut shared = self.shared();
        shared.purge(now);
        shared.waited.insert(nonce.clone(), now + claim.ttl * KEPT_FOR);
        shared.last_id += 1;
        let id = shared.last_id;
        shared.listeners.insert(nonce.clone(), Listener { id, claim: claim.clone(), notify });
        drop(shared);
        Listening { grants: Arc::clone(self), nonce, id, notices }
    }

    pub(crate) fn has_listeners(&self) -> bool {
        !self.shared().listeners.is_empty()
    }

    /// The claim is never repeated, so the store must release a later grant.
    pub(crate) fn note_left(&self, claim: &Claim) {
        let now = self.clock.now();
        let mut shared = self.shared();
        shared.purge(now);
        shared.left.insert(nonce_text(claim.nonce), now + claim.ttl * KEPT_FOR);
    }

    /// The claim is never repeated after the release of its lease, either.
    pub(crate) fn note_released(&self, nonce: Nonce) {
        let mut shared = self.shared();
        if shared.waited.is_empty() {
            return;
        }
        let nonce = nonce_text(nonce);
        if let Some(until) = shared.waited.remove(&nonce) {
            shared.left.insert(nonce, until);
        }
    }

    /// The message has a nonce, the number of the request, a token and a lease. The number is 0 if the queue
    /// was removed.
    pub(crate) fn deliver(&self, message: &[u8]) {
        let Some(published) = Published::parse(message) else { return };
        let mut shared = self.shared();
        if shared.left.contains_key(published.nonce) {
            if published.grant.is_some() {
                let (nonce, lease) = (published.nonce.to_owned(), published.lease.to_owned());
                drop(self.late.send(LateGrant { nonce, lease }));
            }
            return;
        }
        if let Some(listener) = shared.listeners.get_mut(published.nonce) {
            let notice = match published.grant {
                Some((request, token)) => {
                    let grant = listener.claim.granted_to(Some(request), token);
                    Notice::Granted(grant, Attributes::new())
                }
                None => Notice::Missed,
            };
            drop(listener.notify.send(notice));
        }
    }

    pub(crate) fn missed(&self) {
        for listener in self.shared().listeners.values() {
            drop(listener.notify.send(Notice::Missed));
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }
}

impl Shared {
    fn purge(&mut self, now: Moment) {
        if self.left.len() + self.waited.len() >= self.purge_at {
            self.left.retain(|_, until| *until > now);
            self.waited.retain(|_, until| *until > now);
            self.purge_at = ((self.left.len() + self.waited.len()) * 2).max(MIN_PURGE_AT);
        }
    }
}

impl Listening {
    pub(crate) async fn next(&mut self) -> Option<Notice> {
        self.notices.recv().await
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut shared = self.grants.shared();
        // The same claim may already have a new listener, which must stay.
        if shared.listeners.get(&self.nonce).is_some_and(|listener| listener.id == self.id) {
            shared.listeners.remove(&self.nonce);
        }
    }
}

struct Published<'a> {
    nonce: &'a str,
    grant: Option<(RequestNumber, FencingToken)>,
    lease: &'a str,
}

impl<'a> Published<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(message).ok()?.splitn(4, ' ');
        let nonce = parts.next()?;
        let (request, token): (u64, u64) =
            (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let lease = parts.next()?;
        let token = FencingToken::new(token).ok();
        let grant = (request > 0).then_some(RequestNumber::new(request)).zip(token);
        Some(Self { nonce, grant, lease })
    }
}

/// The number of ttls for which `left` keeps a claim. No request arrives later.
const KEPT_FOR: u32 = 4;

const MIN_PURGE_AT: usize = 64;
