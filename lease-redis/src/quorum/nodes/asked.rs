//! The nodes that got the claims of this client. A release goes to no other node.

use std::collections::HashMap;

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
    purge_at: usize,
}

#[derive(Debug)]
struct Asked {
    places: Places,
    until: Moment,
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

    /// Forgets the nodes of the claim. The caller sends a request of the claim to other nodes, or its last
    /// request.
    pub(crate) fn take(&self, claim: Nonce) -> Option<Places> {
        self.claims.lock().asked.remove(&claim).map(|asked| asked.places)
    }
}

const MIN_PURGE_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_claim_are_known_until_taken() {
        let asked = AskedNodes::default();
        let (claim, places) = (Nonce::random(), places([0, 2, 3]));

        assert!(asked.begin(claim, places, at(0), at(10)));

        assert_eq!(asked.take(claim), Some(places));
        assert_eq!(asked.take(claim), None);
    }

    #[test]
    fn repeated_claim_may_have_asked_all_nodes() {
        let asked = AskedNodes::default();
        let claim = Nonce::random();
        assert!(asked.begin(claim, places([0, 1, 2]), at(0), at(10)));

        assert!(!asked.begin(claim, places([1, 2, 3]), at(1), at(11)));

        assert_eq!(asked.take(claim), None);
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
        all.into_iter().for_each(|place| places.insert(place));
        places
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }
}
