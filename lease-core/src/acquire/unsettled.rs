//! Claims whose outcome is unknown. The next attempt at the key repeats the latest one.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::select;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment, sleep_until};
use crate::key::LeaseKey;
use crate::store::grant::{Beat, Claim};
use crate::store::nonce::Nonce;

/// The unsettled claims of each key, the latest last. Several tasks may each leave a claim of one key.
#[derive(Debug, Default)]
pub(crate) struct UnsettledClaims {
    claims: Mutex<HashMap<LeaseKey, Vec<UnsettledClaim>>>,
}

#[derive(Debug)]
pub(crate) struct UnsettledClaim {
    pub(crate) claim: Claim,
    /// When the claim was first sent. The ttl of a grant counts from this moment.
    pub(crate) first_sent: Moment,
    /// The number of the last heartbeat that was sent under the claim.
    pub(crate) beat: Beat,
    /// The nonce of the grant to adopt, if the claim is an adoption.
    pub(crate) adopts: Option<Nonce>,
    /// Repeats the claim until its outcome is known.
    pub(crate) clearing: Arc<ClaimCleanup>,
}

/// Repeats an unsettled claim until another attempt takes it over.
///
/// Sends one request at a time. A request that fails may withdraw its grant, and the store may just have
/// returned this grant to another request for the same claim.
#[derive(Debug, Default)]
pub(crate) struct ClaimCleanup {
    taken_over: CancellationToken,
    asking: tokio::sync::Mutex<()>,
}

impl ClaimCleanup {
    /// Runs `request`. Returns `None` if the claim was taken over before the answer.
    pub(crate) async fn unless_taken_over<F: Future>(&self, request: F) -> Option<F::Output> {
        let _asking = self.asking.lock().await;
        select! {
            // Checked first: the attempt that takes over does not wait for this answer.
            biased;
            () = self.taken_over.cancelled() => None,
            answer = request => Some(answer),
        }
    }

    /// Sleeps until `moment`. Returns `None` if the claim was taken over before.
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

    /// Ends the repetitions. Completes when none of their requests is in flight.
    pub(crate) async fn take_over(&self) {
        self.taken_over.cancel();
        drop(self.asking.lock().await);
    }
}

impl UnsettledClaims {
    pub(crate) fn put(&self, unsettled: UnsettledClaim) {
        self.claims().entry(unsettled.claim.key.clone()).or_default().push(unsettled);
    }

    /// Removes and returns the latest claim of `key` that made the same request.
    pub(crate) fn take(&self, key: &LeaseKey, adopts: Option<Nonce>) -> Option<UnsettledClaim> {
        self.take_latest(key, |unsettled| unsettled.adopts == adopts)
    }

    pub(crate) fn contains(&self, claim: &Claim) -> bool {
        let claims = self.claims();
        let mut of_key = claims.get(&claim.key).into_iter().flatten();
        of_key.any(|kept| kept.claim.nonce == claim.nonce)
    }

    /// Removes `claim`. Returns whether it was present.
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
        self.claims.lock()
    }
}
