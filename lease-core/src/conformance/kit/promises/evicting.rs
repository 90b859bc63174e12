//! Eviction: an operator ends a lease.

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_held};
use crate::conformance::kit::promises::table::colours;
use crate::lost::LossCause;
use crate::store::grant::Heartbeat;
use crate::store::lease_table::LeaseTable;
use crate::token::FencingToken;

/// The next heartbeat of an evicted holder is lost.
pub async fn evicted_lease_is_lost_at_its_next_heartbeat<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;

    let evicted = case.store.evict(&grant.key, grant.token).await;

    assert!(matches!(evicted, Ok(true)), "the store should evict the current grant: {evicted:?}");
    let answer = case.heartbeat(&grant, 1).await;
    assert_eq!(
        answer,
        Heartbeat::Lost(LossCause::Revoked),
        "the store should report an evicted grant as revoked at its next heartbeat"
    );
}

/// An evicted holder may still be working: the key becomes free after the ttl, not earlier.
pub async fn evicted_lease_expires_by_its_ttl<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let since = case.now();
    let grant = case.granted("a").await;
    let evicted = case.store.evict(&grant.key, grant.token).await;
    assert!(evicted.is_ok(), "the store should answer an eviction: {evicted:?}");
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
pub async fn evicted_grant_is_not_adopted<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let grant = case.granted("a").await;
    let evicted = case.store.evict(&grant.key, grant.token).await;
    assert!(matches!(evicted, Ok(true)), "the store should evict the current grant: {evicted:?}");

    drop(expect_held(
        case.adopt(&grant, &case.claim("b")).await,
        "the adoption of a grant that was evicted",
    ));
}

/// An eviction with a token other than the current grant's changes nothing.
pub async fn eviction_by_another_token_changes_nothing<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;
    let other = FencingToken::new(grant.token.get() - 1).unwrap_or(FencingToken::MAX);

    let evicted = case.store.evict(&grant.key, other).await;

    assert!(
        matches!(evicted, Ok(false)),
        "the store should refuse to evict by a token that is not the grant's: {evicted:?}"
    );
    assert_eq!(
        case.heartbeat(&grant, 1).await,
        Heartbeat::Extended,
        "a refused eviction should leave the grant alone"
    );
}
