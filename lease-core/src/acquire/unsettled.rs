//! Claims whose outcome is unknown. The next attempt at the key repeats the latest of these claims.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::select;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment, sleep_until};
use crate::key::LeaseKey;
use crate::store::grant::{Beat, Claim, RequestNumber};
use crate::store::nonce::Nonce;

/// The unsettled claims of each key, the latest last. Several tasks may each leave a claim of one key.
#[derive(Debug, Default)]
pub(crate) struct UnsettledClaims {
    claims: Mutex<ClaimsByKey>,
}

#[derive(Debug, Default)]
struct ClaimsByKey {
    by_key: HashMap<LeaseKey, Vec<UnsettledClaim>>,
    /// Refused claims that are too old are removed when the number of keys reaches this value.
    purge_at: usize,
}

#[derive(Debug)]
pub(crate) struct UnsettledClaim {
    pub(crate) claim: Claim,
    /// When the claim was first sent. If a store does not know which request it has granted, the ttl
    /// counts from this moment.
    pub(crate) first_sent: Moment,
    pub(crate) requests: Arc<ClaimRequests>,
    /// The number of the last heartbeat that was sent under the claim.
    pub(crate) beat: Beat,
    /// The nonce of the grant to adopt, if the claim is an adoption.
    pub(crate) adopts: Option<Nonce>,
    /// The cleanup, which repeats the claim until its outcome is known.
    pub(crate) clearing: Arc<ClaimCleanup>,
    /// When a request of the claim was refused. `None` if no request was answered since the first error.
    pub(crate) kept_since: Option<Moment>,
}

/// Numbers the requests of one claim, and counts the requests without an answer. A store may still grant such
/// a request.
#[derive(Debug, Default)]
pub(crate) struct ClaimRequests {
    sent: AtomicU64,
    answered: AtomicU64,
}

impl ClaimRequests {
    pub(crate) fn next(&self) -> RequestNumber {
        RequestNumber::new(self.sent.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn has_unanswered(&self) -> bool {
        self.answered.load(Ordering::Relaxed) < self.sent.load(Ordering::Relaxed)
    }
}

/// Repeats an unsettled claim until another attempt takes it over.
///
/// Sends one request at a time. Otherwise, a failed request might withdraw the grant that the store has just
/// returned to another request for the same claim.
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
            // Polls the take-over first: the attempt that takes over does not wait for this answer.
            biased;
            () = self.taken_over.cancelled() => None,
            answer = request => Some(answer),
        }
    }

    /// Sleeps until `moment`. Returns `None` if the claim was taken over before that moment.
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
        self.claims().push(unsettled);
    }

    /// Keeps a claim that was refused, but has requests without an answer.
    pub(crate) fn keep(&self, refused: UnsettledClaim, now: Moment) {
        let mut claims = self.claims();
        if claims.by_key.len() >= claims.purge_at {
            claims.purge(now);
        }
        claims.push(refused);
    }

    /// Removes and returns the latest claim of `key` with the same value of `adopts`.
    pub(crate) fn take(&self, key: &LeaseKey, adopts: Option<Nonce>) -> Option<UnsettledClaim> {
        self.take_latest(key, |unsettled| unsettled.adopts == adopts)
    }

    pub(crate) fn contains(&self, claim: &Claim) -> bool {
        let claims = self.claims();
        let mut of_key = claims.by_key.get(&claim.key).into_iter().flatten();
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
        let of_key = claims.by_key.get_mut(key)?;
        let place = of_key.iter().rposition(is_meant)?;
        let taken = of_key.remove(place);
        if of_key.is_empty() {
            claims.by_key.remove(key);
        }
        Some(taken)
    }

    fn claims(&self) -> MutexGuard<'_, ClaimsByKey> {
        self.claims.lock()
    }
}

impl ClaimsByKey {
    fn push(&mut self, unsettled: UnsettledClaim) {
        self.by_key.entry(unsettled.claim.key.clone()).or_default().push(unsettled);
    }

    /// Removes the claims that were refused more than `KEPT_FOR` ttls ago.
    fn purge(&mut self, now: Moment) {
        self.by_key.retain(|_, of_key| {
            of_key.retain(|kept| {
                kept.kept_since.is_none_or(|since| now.since(since) < kept.claim.ttl * KEPT_FOR)
            });
            !of_key.is_empty()
        });
        self.purge_at = (self.by_key.len() * 2).max(MIN_PURGE_AT);
    }
}

/// After this many ttls, a late request is no longer expected.
const KEPT_FOR: u32 = 4;

const MIN_PURGE_AT: usize = 64;
