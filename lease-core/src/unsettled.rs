//! Claims of which nobody knows whether they were granted: the next attempt goes on with them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::select;
use tokio_util::sync::CancellationToken;

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
    /// Whoever clears up after it.
    pub(crate) clearing: Arc<Clearing>,
}

/// Asks for an unsettled claim, until it is taken over.
///
/// One at a time: a request that fails may take back what it was granted, and with it what
/// another request for the same claim has just been told.
#[derive(Debug, Default)]
pub(crate) struct Clearing {
    taken_over: CancellationToken,
    asking: tokio::sync::Mutex<()>,
}

impl Clearing {
    /// Runs `request`; `None` where the claim was taken over before it was answered.
    pub(crate) async fn unless_taken_over<F: Future>(&self, request: F) -> Option<F::Output> {
        let _asking = self.asking.lock().await;
        select! {
            // Whoever has taken over does not wait for an answer.
            biased;
            () = self.taken_over.cancelled() => None,
            answer = request => Some(answer),
        }
    }

    /// Completes once nothing is asked here any more.
    pub(crate) async fn take_over(&self) {
        self.taken_over.cancel();
        drop(self.asking.lock().await);
    }
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
