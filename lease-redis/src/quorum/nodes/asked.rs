//! The nodes that got the claims of this client. A release goes to no other node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lease_core::store::{Moment, Nonce};
use parking_lot::Mutex;

/// A set of nodes, by their indices.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places(u64);

impl Places {
    /// A larger quorum asks all nodes at once.
    pub(crate) const MOST_NODES: usize = 64;

    pub(crate) fn insert(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    pub(crate) fn contains(self, place: usize) -> bool {
        place < Self::MOST_NODES && self.0 & 1 << place != 0
    }

    pub(crate) fn count(self) -> usize {
        self.iter().count()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..Self::MOST_NODES).filter(move |place| self.contains(*place))
    }
}

/// Has an entry for each claim that went only to its first nodes. All nodes may have the grant of any other
/// claim: other nodes were asked too, a heartbeat was sent, or another process has sent the claim.
#[derive(Debug, Default)]
pub(crate) struct AskedNodes {
    claims: Mutex<Claims>,
}

#[derive(Debug, Default)]
struct Claims {
    asked: HashMap<Nonce, Asked>,
    /// The claims whose release went only to the first nodes, until all of them have answered.
    releasing: HashSet<Nonce>,
    purge_at: usize,
}

#[derive(Debug)]
struct Asked {
    places: Places,
    until: Moment,
}

/// A release that goes only to the first nodes of its claim. Exists until these nodes have answered.
#[derive(Debug)]
pub(crate) struct Releasing {
    pub(crate) places: Places,
    claim: Nonce,
    asked: Arc<AskedNodes>,
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.asked.claims.lock().releasing.remove(&self.claim);
    }
}

/// What a heartbeat may do on the nodes that do not have its grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only the first nodes got the claim. The heartbeat restores the grant on the others.
    FirstNodes,
    AllNodes,
    /// A release went to the first nodes. So the heartbeat must not restore the grant on other nodes.
    Released,
}

impl AskedNodes {
    /// Returns `false` if an earlier request of the claim may have gone to other nodes. The entry is kept until
    /// `until`, so that grants that are never released take no memory.
    pub(crate) fn begin(&self, claim: Nonce, places: Places, now: Moment, until: Moment) -> bool {
        let mut claims = self.claims.lock();
        if claims.asked.len() >= claims.purge_at {
            claims.asked.retain(|_, asked| asked.until > now);
            claims.purge_at = (claims.asked.len() * 2).max(MIN_PURGE_AT);
        }
        if claims.asked.remove(&claim).is_some() {
            return false;
        }
        claims.asked.insert(claim, Asked { places, until });
        true
    }

    /// Forgets the nodes of the claim. The caller sends a request of the claim or of its grant to other nodes.
    pub(crate) fn take(&self, claim: Nonce) {
        self.claims.lock().asked.remove(&claim);
    }

    /// Returns `None` if all nodes must get the release.
    pub(crate) fn release(self: &Arc<Self>, claim: Nonce) -> Option<Releasing> {
        let mut claims = self.claims.lock();
        let Asked { places, .. } = claims.asked.remove(&claim)?;
        claims.releasing.insert(claim);
        drop(claims);
        Some(Releasing { places, claim, asked: Arc::clone(self) })
    }

    /// Also makes a later release go to all nodes, because the heartbeat does.
    pub(crate) fn reach_of_heartbeat(&self, claim: Nonce) -> Reach {
        let mut claims = self.claims.lock();
        if claims.asked.remove(&claim).is_some() {
            Reach::FirstNodes
        } else if claims.releasing.contains(&claim) {
            Reach::Released
        } else {
            Reach::AllNodes
        }
    }
}

const MIN_PURGE_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_claim_are_known_until_taken() {
        let asked = Arc::<AskedNodes>::default();
        let (claim, places) = (Nonce::random(), places([0, 2, 3]));

        assert!(asked.begin(claim, places, at(0), at(10)));

        assert_eq!(asked.release(claim).unwrap().places, places);
        assert!(asked.release(claim).is_none());
    }

    #[test]
    fn heartbeat_restores_nothing_while_a_release_is_on_its_way() {
        let asked = Arc::<AskedNodes>::default();
        let claim = Nonce::random();
        assert!(asked.begin(claim, places([0, 1, 2]), at(0), at(10)));

        let releasing = asked.release(claim);

        assert_eq!(asked.reach_of_heartbeat(claim), Reach::Released);
        drop(releasing);
        assert_eq!(asked.reach_of_heartbeat(claim), Reach::AllNodes);
    }

    #[test]
    fn release_after_a_heartbeat_goes_to_all_nodes() {
        let asked = Arc::<AskedNodes>::default();
        let claim = Nonce::random();
        assert!(asked.begin(claim, places([0, 1, 2]), at(0), at(10)));

        assert_eq!(asked.reach_of_heartbeat(claim), Reach::FirstNodes);

        assert!(asked.release(claim).is_none());
        assert_eq!(asked.reach_of_heartbeat(claim), Reach::AllNodes);
    }

    #[test]
    fn repeated_claim_may_have_asked_all_nodes() {
        let asked = Arc::<AskedNodes>::default();
        let claim = Nonce::random();
        assert!(asked.begin(claim, places([0, 1, 2]), at(0), at(10)));

        assert!(!asked.begin(claim, places([1, 2, 3]), at(1), at(11)));

        assert!(asked.release(claim).is_none());
    }

    #[test]
    fn ended_claims_are_purged() {
        let asked = AskedNodes::default();
        for _ in 0..MIN_PURGE_AT {
            asked.begin(Nonce::random(), places([0]), at(0), at(10));
        }

        asked.begin(Nonce::random(), places([0]), at(10), at(20));

        assert_eq!(asked.claims.lock().asked.len(), 1);
    }

    fn places<const N: usize>(all: [usize; N]) -> Places {
        let mut places = Places::default();
        for place in all {
            places.insert(place);
        }
        places
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }
}
