//! Promises about releases and reservations, and when the key becomes free.

use std::time::Duration;

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_granted, expect_held};
use crate::store::grant::{Grant, Heartbeat, Obtained};
use crate::store::lock_store::LockStore;

/// A released key is granted to the next claim.
pub async fn released_key_is_free_at_once<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;

    case.release(&grant).await;

    case.granted("b").await;
}

/// A release by a former holder does not affect the current holder.
pub async fn release_by_former_holder_changes_nothing<F: Fixture>(case: Case<F>) {
    let former = case.granted("a").await;
    case.pass(case.ttl).await;
    let (current, _) = case.taken_over("b").await;

    case.release(&former).await;

    case.has_holder(&current.lessee, "a former holder's release should change nothing").await;
}

/// A second release of the same grant succeeds.
pub async fn second_release_is_harmless<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.release(&grant).await;

    case.release(&grant).await;

    case.has_no_holder("two releases").await;
}

/// A late duplicate of a claim is refused after the release of its grant, if the store remembers
/// released grants.
pub async fn released_nonce_is_not_granted_again<F: Fixture>(case: Case<F>) {
    let claim = case.claim("a");
    let grant = case.obtain(&claim).await;
    case.release(&grant).await;

    let late = case.ask(&claim.repeated()).await;

    case.is_refused_or_expires(late, &grant).await;
}

impl<F: Fixture> Case<F> {
    pub(crate) async fn is_refused_or_expires(&self, late: Obtained, released: &Grant) {
        if self.fixture.remembers_released_nonces() {
            drop(expect_held(late, "a claim whose own grant was released"));
            self.has_no_holder("a release and a duplicate of its claim").await;
            return;
        }
        if let Obtained::Granted(duplicate, _) = late {
            assert!(
                duplicate.token > released.token,
                "a late duplicate was granted under token {}, after {}: each grant should have a larger \
                 token",
                duplicate.token,
                released.token
            );
        }
        let late = self.heartbeat(released, 1).await;
        assert!(
            !matches!(late, Heartbeat::Extended),
            "a heartbeat of a released grant should be refused, even if a duplicate was granted"
        );
        self.taken_over("b").await;
    }
}

/// A reserved key is granted only after the reservation has passed, and then to any lessee.
pub async fn reserved_key_is_not_granted_before_its_time<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    let since = case.now();
    let released = case.store.release(&grant, Some(case.ttl)).await;
    assert!(released.is_ok(), "the store should answer a release: {released:?}");

    let (_, taken) = case.taken_over("a").await;

    case.not_before_ttl(taken, since);
}

/// The store grants a reserved key to no lessee, although the key has no holder.
pub async fn reserved_key_has_no_holder<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    let released = case.store.release(&grant, Some(case.fixture.long_ttl())).await;
    assert!(released.is_ok(), "the store should answer a release: {released:?}");
    drop(expect_held(case.ask(&case.claim("b")).await, "a claim of a reserved key"));

    case.has_no_holder("a release that reserved the key").await;
}

/// A release wakes a watch that was registered before the release, if the store can wake watches.
pub async fn watch_wakes_on_release<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    let Ok(freed) = case.store.watch(&grant.key).await else {
        return;
    };
    if !freed.can_wake() {
        return;
    }

    case.release(&grant).await;

    let woken = tokio::time::timeout(Duration::from_secs(60), freed).await;
    assert!(
        woken.is_ok(),
        "a watch did not wake within a minute of the release: the store should wake it, or return \
         a watch whose `can_wake` is false"
    );
    drop(expect_granted(case.ask(&case.claim("b")).await, "a key whose release woke a watch"));
}
