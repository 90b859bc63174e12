//! The queued claims of this client, and the notices of their grants.

use std::collections::HashMap;
use std::sync::Arc;

use lease_core::store::{BootClock, Claim, Clock, Moment, Nonce, Notice, Notices, RequestNumber};
use lease_core::{Attributes, FencingToken, LeaseKey};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[derive(Debug, Clone)]
pub(crate) struct Grants {
    clock: BootClock,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    last_id: u64,
    listeners: HashMap<Nonce, Listener>,
    /// A late request of such a claim may join the queue again until the given time.
    left: HashMap<Nonce, (LeaseKey, Moment)>,
    purge_at: usize,
}

#[derive(Debug)]
struct Listener {
    id: u64,
    claim: Claim,
    notify: UnboundedSender<Notice>,
}

/// Dropping the value removes its listener.
struct Listening {
    grants: Grants,
    nonce: Nonce,
    id: u64,
    notices: UnboundedReceiver<Notice>,
}

impl Grants {
    pub(crate) fn new() -> Self {
        let shared = Shared { purge_at: MIN_PURGE_AT, ..Shared::default() };
        Self { clock: BootClock::new(), shared: Arc::new(Mutex::new(shared)) }
    }

    /// A claim that listens again replaces its earlier listener.
    pub(crate) fn listen(&self, claim: &Claim) -> Notices {
        let (notify, notices) = unbounded_channel();
        let mut shared = self.lock();
        shared.last_id += 1;
        let (id, nonce) = (shared.last_id, claim.nonce);
        shared.listeners.insert(nonce, Listener { id, claim: claim.clone(), notify });
        drop(shared);
        let listening = Listening { grants: self.clone(), nonce, id, notices };
        Notices::new(futures_util::stream::unfold(listening, async |mut listening| {
            let notice = listening.notices.recv().await?;
            Some((notice, listening))
        }))
    }

    /// The nonce is never used again, so a later grant has to be released.
    pub(crate) fn note_left(&self, claim: &Claim) {
        let now = self.clock.now();
        let mut shared = self.lock();
        if shared.left.len() >= shared.purge_at {
            shared.left.retain(|_, (_, until)| *until > now);
            shared.purge_at = (shared.left.len() * 2).max(MIN_PURGE_AT);
        }
        shared.left.insert(claim.nonce, (claim.key.clone(), now + claim.ttl * KEPT_FOR));
    }

    /// The message is a nonce, the number of the granted request, and the token of the grant. The token is 0 if
    /// the waiter has to ask. Returns the key of a claim that has left its queue before this grant.
    pub(crate) fn deliver(&self, message: &str) -> Option<(LeaseKey, Nonce)> {
        let (nonce, request, token) = parse(message)?;
        let shared = self.lock();
        if let Some((key, _)) = shared.left.get(&nonce) {
            return Some((key.clone(), nonce));
        }
        let listener = shared.listeners.get(&nonce)?;
        let notice = match FencingToken::new(token) {
            Ok(token) if token.get() > 0 => {
                let grant = listener.claim.granted_to(Some(RequestNumber::new(request)), token);
                Notice::Granted(grant, Attributes::new())
            }
            _ => Notice::Missed,
        };
        // An error means that the waiter was dropped. Its claim then leaves the queue.
        drop(listener.notify.send(notice));
        None
    }

    /// A transfer, a deletion or the end of a session has freed the key without a grant.
    pub(crate) fn freed(&self, key: &str) {
        let shared = self.lock();
        let of_key = shared.listeners.values().filter(|it| it.claim.key.as_str() == key);
        for listener in of_key {
            drop(listener.notify.send(Notice::Missed));
        }
    }

    pub(crate) fn missed(&self) {
        for listener in self.lock().listeners.values() {
            drop(listener.notify.send(Notice::Missed));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut shared = self.grants.lock();
        if shared.listeners.get(&self.nonce).is_some_and(|listener| listener.id == self.id) {
            shared.listeners.remove(&self.nonce);
        }
    }
}

fn parse(message: &str) -> Option<(Nonce, u64, u64)> {
    let mut parts = message.split(' ');
    let nonce = Nonce::new(parts.next()?.parse().ok()?);
    Some((nonce, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The number of ttls for which `left` keeps a claim. No request arrives later.
const KEPT_FOR: u32 = 4;
const MIN_PURGE_AT: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn claim() -> Claim {
        let (key, lessee) = ("job".parse().unwrap(), "a".parse().unwrap());
        Claim::new(key, lessee, Nonce::random(), Duration::from_secs(30))
    }

    #[tokio::test]
    async fn grant_reaches_its_claim_only() {
        let (grants, first, second) = (Grants::new(), claim(), claim());
        let (mut one, mut other) = (grants.listen(&first), grants.listen(&second));

        assert_eq!(grants.deliver(&format!("{} 3 7", first.nonce.get())), None);
        grants.missed();

        let Notice::Granted(grant, _) = one.next().await else { panic!("no grant") };
        assert_eq!((grant.nonce, grant.token.get()), (first.nonce, 7));
        assert_eq!(grant.request, Some(RequestNumber::new(3)));
        assert_eq!(other.next().await, Notice::Missed);
    }

    #[tokio::test]
    async fn grant_of_a_claim_that_has_left_is_returned() {
        let (grants, left) = (Grants::new(), claim());
        grants.note_left(&left);

        let late = grants.deliver(&format!("{} 1 7", left.nonce.get()));

        assert_eq!(late, Some((left.key, left.nonce)));
    }

    #[test]
    fn dropped_notices_leave_no_listener() {
        let (grants, claim) = (Grants::new(), claim());
        let earlier = grants.listen(&claim);
        let later = grants.listen(&claim);

        drop(earlier);
        assert_eq!(grants.lock().listeners.len(), 1);
        drop(later);

        assert!(grants.lock().listeners.is_empty());
    }

    proptest! {
        #[test]
        fn other_messages_are_ignored(message in any::<String>()) {
            prop_assert_eq!(Grants::new().deliver(&message), None);
        }
    }
}
