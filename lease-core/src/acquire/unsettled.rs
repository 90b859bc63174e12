//! Claims whose outcome is unknown: the next attempt at the key repeats the latest.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::select;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment, sleep_until};
use crate::key::LeaseKey;
use crate::store::grant::{Beat, Claim};
use crate::store::nonce::Nonce;

/// The claims of each key, the latest last. Two tasks that fail at one key leave one each.
#[derive(Debug, Default)]
pub(crate) struct UnsettledClaims {
    claims: Mutex<HashMap<LeaseKey, Vec<UnsettledClaim>>>,
}

#[derive(Debug)]
pub(crate) struct UnsettledClaim {
    pub(crate) claim: Claim,
    /// When it was sent for the first time: what it may have been granted lasts from then.
    pub(crate) first_sent: Moment,
    /// The number of the last heartbeat that was sent under it.
    pub(crate) beat: Beat,
    /// The grant that it was to adopt, if any.
    pub(crate) adopts: Option<Nonce>,
    /// Clears up after it.
    pub(crate) clearing: Arc<ClaimCleanup>,
}

/// Repeats an unsettled claim until another attempt takes it over.
///
/// One request at a time: a request that fails may withdraw its grant, which the store may just have
/// returned to another request for the same claim.
#[derive(Debug, Default)]
pub(crate) struct ClaimCleanup {
    taken_over: CancellationToken,
    asking: tokio::sync::Mutex<()>,
}

impl ClaimCleanup {
    /// Runs `request`; `None` where the claim was taken over before it was answered.
    pub(crate) async fn unless_taken_over<F: Future>(&self, request: F) -> Option<F::Output> {
        let _asking = self.asking.lock().await;
        select! {
            // The attempt that takes over does not wait for an answer.
            biased;
            () = self.taken_over.cancelled() => None,
            answer = request => Some(answer),
        }
    }

    /// Sleeps until `moment`; `None` where the claim was taken over before.
    pub(crate) async fn sleep_until(
        &self,
        clock: &dyn Clock,
        moment: Moment,
        recheck: Duration,
    ) -> Option<()> {
        select! {
            biased;
            () = self.taken_over.cancelled() => None,
            () = sleep_until(clock, moment, recheck) => Some(()),
        }
    }

    /// Ends the repetitions, and completes once none of their requests is in flight.
    pub(crate) async fn take_over(&self) {
        self.taken_over.cancel();
        drop(self.asking.lock().await);
    }
}

impl UnsettledClaims {
    pub(crate) fn put(&self, unsettled: UnsettledClaim) {
        self.claims().entry(unsettled.claim.key.clone()).or_default().push(unsettled);
    }

    /// Takes over the latest claim of `key` that asked for the same.
    pub(crate) fn take(&self, key: &LeaseKey, adopts: Option<Nonce>) -> Option<UnsettledClaim> {
        self.take_latest(key, |unsettled| unsettled.adopts == adopts)
    }

    pub(crate) fn contains(&self, claim: &Claim) -> bool {
        let claims = self.claims();
        let mut of_key = claims.get(&claim.key).into_iter().flatten();
        of_key.any(|kept| kept.claim.nonce == claim.nonce)
    }

    /// Forgets `claim`; says whether it was still there.
    pub(crate) fn remove(&self, claim: &Claim) -> bool {
        self.take_latest(&claim.key, |unsettled| unsettled.claim.nonce == claim.nonce).is_some()
    }

    fn take_latest(
        &self,
        key: &LeaseKey,
        is_meant: impl Fn(&UnsettledClaim) -> bool,
    ) -> Option<UnsettledClaim> {
        let mut claims = self.claims();
        let of_key = claims.get_mut(key)?;
        let place = of_key.iter().rposition(is_meant)?;
        let taken = of_key.remove(place);
        if of_key.is_empty() {
            claims.remove(key);
        }
        Some(taken)
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<LeaseKey, Vec<UnsettledClaim>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
