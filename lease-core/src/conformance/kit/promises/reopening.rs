//! Promises about a store's data after the store was closed and opened again.

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_again, expect_granted, expect_held};
use crate::conformance::kit::promises::table::colours;
use crate::lost::LossCause;
use crate::store::attributes::Change;
use crate::store::grant::{Heartbeat, Written};
use crate::store::lease_table::LeaseTable;
use crate::store::lock_store::LockStore;

/// A lease stays held after its holder's process has closed the store.
pub async fn held_key_stays_held_after_reopening<F: Fixture>(case: Case<F>) {
    let claim = case.long_claim(&case.key(), "a");
    let grant = case.obtain(&claim).await;

    let Some(case) = case.reopened().await else { return };

    drop(expect_held(
        case.ask(&case.claim("b")).await,
        "a claim of a key that was held when the store was closed",
    ));
    let again = expect_granted(
        case.ask(&claim.repeated()).await,
        "a repeated claim of the holder, as after a lost reply",
    );
    expect_again(&again, &grant, "a repeated claim");
    let answer = case.heartbeat(&again, 1).await;
    assert_eq!(
        answer,
        Heartbeat::Extended,
        "the store should extend a grant that it made before it was closed"
    );
}

/// The first token after reopening is larger than the last token before it.
pub async fn tokens_grow_after_reopening<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.release(&grant).await;

    let case = case.reopened_or_empty().await;

    let next = case.granted("b").await;
    assert!(
        next.token > grant.token,
        "the token after {} was {}: the store should keep its counter over a restart, or start \
         from the time in microseconds since 1970",
        grant.token,
        next.token
    );
}

/// Also after reopening, the store refuses a late duplicate of a claim whose grant was released.
pub async fn released_nonce_is_refused_after_reopening<F: Fixture>(case: Case<F>) {
    let claim = case.claim("a");
    let grant = case.obtain(&claim).await;
    case.release(&grant).await;

    let Some(case) = case.reopened().await else { return };

    let late = case.ask(&claim.repeated()).await;
    case.is_refused_or_expires(late, &grant).await;
}

/// A reservation stays in force while the store is closed.
pub async fn reserved_key_stays_reserved_after_reopening<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    let released = case.store.release(&grant, Some(case.fixture.long_ttl())).await;
    assert!(released.is_ok(), "the store should answer a release: {released:?}");

    let Some(case) = case.reopened().await else { return };

    drop(expect_held(
        case.ask(&case.claim("b")).await,
        "a claim of a key that was reserved before the store was closed",
    ));
}

/// If a heartbeat arrives after a later heartbeat, the store answers `Overtaken`, also after reopening.
pub async fn late_heartbeat_is_overtaken_after_reopening<F: Fixture>(case: Case<F>) {
    let grant = case.obtain(&case.long_claim(&case.key(), "a")).await;
    case.heartbeat(&grant, 2).await;

    let Some(case) = case.reopened().await else { return };

    assert_eq!(
        case.heartbeat(&grant, 1).await,
        Heartbeat::Overtaken,
        "the store should keep the number of a grant's last heartbeat, 2, over a restart"
    );
}

/// After reopening, a read returns the attributes that were written before.
pub async fn attributes_are_read_back_after_reopening<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let grant = case.obtain(&case.long_claim(&case.key(), "a")).await;
    let change = Change::new().set("sky", "grey");
    let written = case.written(case.store.update(&grant, &change)).await;
    assert_eq!(written, Written::Applied, "the store should apply an update of the key's holder");

    let Some(case) = case.reopened().await else { return };

    let mut expected = colours();
    change.apply(&mut expected);
    assert_eq!(
        case.attributes().await,
        expected,
        "the store should keep attributes over a restart"
    );
}

/// An evicted lease is lost, even if the store is reopened before the holder's next heartbeat.
pub async fn evicted_lease_stays_evicted_after_reopening<F: Fixture>(case: Case<F>) {
    let grant = case.obtain(&case.long_claim(&case.key(), "a")).await;
    if !case.evicted().await {
        return;
    }

    let Some(case) = case.reopened().await else { return };

    assert_eq!(
        case.heartbeat(&grant, 1).await,
        Heartbeat::Lost(LossCause::Revoked),
        "the store should keep the mark of an eviction over a restart"
    );
}
