//! Eviction: an operator ends a lease.

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_held};
use crate::conformance::kit::promises::table::colours;
use crate::lost::LossCause;
use crate::store::grant::{GrantId, Heartbeat};
use crate::store::lease_table::LeaseTable;
use crate::store::lock_store::LockStore;

/// The next heartbeat of an evicted holder is lost.
pub async fn evicted_lease_is_lost_at_its_next_heartbeat<F: Fixture>(case: Case<F>) {
    case.evicted_holder_is_lost().await;
}

/// The holder of a key that has a record can be evicted, too.
pub async fn holder_of_record_is_evicted<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;

    case.evicted_holder_is_lost().await;

    case.attributes_are(&colours(), "an eviction should change no attributes").await;
}

/// An evicted holder may still be working: the key becomes free after the ttl, not earlier.
pub async fn evicted_lease_expires_by_its_ttl<F: Fixture>(case: Case<F>) {
    let since = case.now();
    let grant = case.granted("a").await;
    if case.evicted().await.is_none() {
        return;
    }
    case.pass(case.ttl / 2).await;
    // This heartbeat must not extend the lease either.
    case.heartbeat(&grant, 1).await;

    let (next, taken) = case.taken_over("b").await;

    case.not_before_ttl(taken, since);
    assert_eq!(
        case.heartbeat(&next, 1).await,
        Heartbeat::Extended,
        "the store should remove the mark of an eviction with the next grant"
    );
}

/// An evicted grant cannot be adopted.
pub async fn evicted_grant_is_not_adopted<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    if case.evicted().await.is_none() {
        return;
    }

    drop(expect_held(
        case.adopt(&grant, &case.claim("b")).await,
        "the adoption of a grant that was evicted",
    ));
}

/// An eviction of another grant than the current one changes nothing.
pub async fn eviction_of_another_grant_changes_nothing<F: Fixture>(case: Case<F>) {
    let former = case.granted("a").await;
    let Some(named) = case.holder().await.and_then(|holder| holder.grant) else { return };
    case.release(&former).await;
    let grant = case.granted("a").await;

    for other in [named, GrantId::new("no such grant")] {
        let evicted = case.store.evict(&grant.key, &other).await;
        assert!(
            !matches!(evicted, Ok(true)),
            "the store should refuse to evict a grant that is not current: {evicted:?}"
        );
    }

    assert_eq!(
        case.heartbeat(&grant, 1).await,
        Heartbeat::Extended,
        "a refused eviction should leave the grant alone"
    );
}

impl<F: Fixture> Case<F> {
    async fn evicted_holder_is_lost(&self) {
        let grant = self.granted("a").await;

        let Some(evicted) = self.evicted().await else { return };

        assert!(evicted, "the store should evict the current grant");
        let answer = self.heartbeat(&grant, 1).await;
        assert_eq!(
            answer,
            Heartbeat::Lost(LossCause::Revoked),
            "the store should report an evicted grant as revoked at its next heartbeat"
        );
    }
}
