//! Claims whose outcome is unknown. The next attempt at the key repeats the latest of these claims.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::select;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment, sleep_until};
use crate::key::LeaseKey;
use crate::store::grant::{Beat, Claim, RequestNumber};
use crate::store::nonce::Nonce;

/// Several tasks may each leave a claim of one key.
#[derive(Debug, Default)]
pub(crate) struct UnsettledClaims {
    claims: Mutex<ClaimsByKey>,
}

#[derive(Debug, Default)]
struct ClaimsByKey {
    by_key: HashMap<LeaseKey, Vec<UnsettledClaim>>,
    purge_at: usize,
}

#[derive(Debug)]
pub(crate) struct UnsettledClaim {
    pub(crate) claim: Claim,
    /// When the claim was first sent. The ttl counts from this moment if the store does not know
    /// which request it has granted.
    pub(crate) first_sent: Moment,
    pub(crate) requests: Arc<ClaimRequests>,
    pub(crate) beat: Beat,
    /// The nonce of the grant to adopt, if the claim is an adoption.
    pub(crate) adopts: Option<Nonce>,
    pub(crate) clearing: Arc<ClaimCleanup>,
    /// When a request of the claim was first refused, if ever. Later errors do not change this time, because errors
    /// that recur would prolong the claim without a limit.
    pub(crate) kept_since: Option<Moment>,
}

/// Numbers the requests of one claim. The store may still grant a request without an answer.
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

/// Sends one request at a time. A failed second request might withdraw the grant that the store has
/// just returned to the first request.
#[derive(Debug, Default)]
pub(crate) struct ClaimCleanup {
    taken_over: CancellationToken,
    /// Set when the claim is dropped while a request of the cleanup may be in flight.
    releases_late_grant: AtomicBool,
    asking: tokio::sync::Mutex<()>,
}

impl ClaimCleanup {
    /// Returns `None` if the claim was taken over before the answer.
    pub(crate) async fn unless_taken_over<F: Future>(&self, request: F) -> Option<F::Output> {
        let _asking = self.asking.lock().await;
        select! {
            // Polls the take-over first: the attempt that takes over does not wait for this answer.
            biased;
            () = self.taken_over.cancelled() => None,
            answer = request => Some(answer),
        }
    }

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

    /// Whether no attempt repeats the claim any more, so that the cleanup releases what its last request obtains.
    pub(crate) fn releases_late_grant(&self) -> bool {
        self.releases_late_grant.load(Ordering::Relaxed)
    }

    /// Ends the repetitions, and waits until no request is in flight.
    pub(crate) async fn take_over(&self) {
        self.taken_over.cancel();
        drop(self.asking.lock().await);
    }
}

impl UnsettledClaims {
    pub(crate) fn put(&self, unsettled: UnsettledClaim) {
        self.claims().push(unsettled);
    }

    /// Keeps a refused claim, because its unanswered requests may still be granted.
    pub(crate) fn keep(&self, refused: UnsettledClaim, now: Moment) {
        let mut claims = self.claims();
        if claims.by_key.len() >= claims.purge_at {
            claims.purge(now);
        }
        claims.push(refused);
    }

    /// Removes and returns the latest claim of `key` with the same value of `adopts`. Returns no claim that was
    /// refused too long ago: a store may refuse it for as long as it remembers the nonce.
    pub(crate) fn take(
        &self,
        key: &LeaseKey,
        adopts: Option<Nonce>,
        now: Moment,
    ) -> Option<UnsettledClaim> {
        let taken = self.take_latest(key, |unsettled| unsettled.adopts == adopts)?;
        if taken.is_too_old(now) {
            taken.clearing.releases_late_grant.store(true, Ordering::Relaxed);
            return None;
        }
        Some(taken)
    }

    pub(crate) fn contains(&self, claim: &Claim) -> bool {
        let claims = self.claims();
        let mut of_key = claims.by_key.get(&claim.key).into_iter().flatten();
        of_key.any(|kept| kept.claim.nonce == claim.nonce)
    }

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

impl UnsettledClaim {
    /// Whether the claim was refused so long ago that the next attempt uses a new nonce. A later request without an
    /// answer may still be granted, and then holds the key for one ttl.
    fn is_too_old(&self, now: Moment) -> bool {
        self.kept_since.is_some_and(|since| now.since(since) >= self.claim.ttl * KEPT_FOR)
    }
}

impl ClaimsByKey {
    fn push(&mut self, unsettled: UnsettledClaim) {
        self.by_key.entry(unsettled.claim.key.clone()).or_default().push(unsettled);
    }

    fn purge(&mut self, now: Moment) {
        self.by_key.retain(|_, of_key| {
            of_key.retain(|kept| !kept.is_too_old(now));
            !of_key.is_empty()
        });
        self.purge_at = (self.by_key.len() * 2).max(MIN_PURGE_AT);
    }
}

/// After this many ttls, no late copy of the first request is expected.
const KEPT_FOR: u32 = 4;

const MIN_PURGE_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(since: Option<Moment>) -> UnsettledClaim {
        let lessee = "a".parse().unwrap();
        let claim = Claim::new(key(), lessee, Nonce::random(), Duration::from_secs(1));
        UnsettledClaim {
            claim,
            first_sent: Moment::from_nanos(0),
            requests: Arc::default(),
            beat: Beat::GRANTED,
            adopts: None,
            clearing: Arc::default(),
            kept_since: since,
        }
    }

    fn key() -> LeaseKey {
        "job".parse().unwrap()
    }

    #[test]
    fn refused_claim_is_repeated_for_four_ttls_at_most() {
        let claims = UnsettledClaims::default();
        let now = Moment::from_nanos(0) + Duration::from_secs(10);
        for (since, is_repeated) in [(None, true), (Some(7), true), (Some(6), false)] {
            let since = since.map(|seconds| Moment::from_nanos(0) + Duration::from_secs(seconds));
            claims.put(kept(since));

            assert_eq!(claims.take(&key(), None, now).is_some(), is_repeated, "{since:?}");
            assert!(claims.take(&key(), None, now).is_none(), "{since:?}");
        }
    }
}
