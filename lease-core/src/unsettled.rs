//! Claims of which nobody knows whether they were granted: the next attempt goes on with them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Moment;
use crate::grant::Claim;
use crate::key::LeaseKey;
use crate::nonce::Nonce;

/// At most one per key: the latest.
#[derive(Debug, Default)]
pub(crate) struct UnsettledClaims {
    claims: Mutex<HashMap<LeaseKey, Unsettled>>,
}

#[derive(Debug)]
pub(crate) struct Unsettled {
    pub(crate) claim: Claim,
    /// When it was sent for the first time: what it may have been granted lasts from then.
    pub(crate) first_sent: Moment,
    /// The grant that it was to adopt, if any.
    pub(crate) adopts: Option<Nonce>,
}

impl UnsettledClaims {
    pub(crate) fn put(&self, unsettled: Unsettled) {
        self.claims().insert(unsettled.claim.key.clone(), unsettled);
    }

    /// Takes over the claim of `key` that asked for the same.
    pub(crate) fn take(&self, key: &LeaseKey, adopts: Option<Nonce>) -> Option<Unsettled> {
        let mut claims = self.claims();
        if claims.get(key)?.adopts != adopts {
            return None;
        }
        claims.remove(key)
    }

    pub(crate) fn contains(&self, claim: &Claim) -> bool {
        self.claims().get(&claim.key).is_some_and(|kept| kept.claim.nonce == claim.nonce)
    }

    /// Forgets `claim`; says whether it was still there.
    pub(crate) fn remove(&self, claim: &Claim) -> bool {
        let mut claims = self.claims();
        let is_there = claims.get(&claim.key).is_some_and(|kept| kept.claim.nonce == claim.nonce);
        if is_there {
            claims.remove(&claim.key);
        }
        is_there
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<LeaseKey, Unsettled>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
