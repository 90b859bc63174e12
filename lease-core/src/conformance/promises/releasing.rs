//! What frees a key, and what does not.

use std::time::Duration;

use crate::conformance::Fixture;
use crate::conformance::case::{Case, expect_held};
use crate::grant::Obtained;
use crate::store::LockStore;

/// A released key is granted to the next who asks.
pub async fn a_released_key_is_free_at_once<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;

    case.release(&grant).await;

    case.granted("b").await;
}

/// A former holder's release leaves the key to its holder.
pub async fn a_release_by_a_former_holder_changes_nothing<F: Fixture>(case: Case<F>) {
    let former = case.granted("a").await;
    case.pass(case.ttl).await;
    let (current, _) = case.taken_over("b").await;

    case.release(&former).await;

    assert_eq!(case.lessee_of_holder().await, Some(current.lessee));
}

/// A release that is sent twice is harmless.
pub async fn a_second_release_is_harmless<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.release(&grant).await;

    case.release(&grant).await;

    assert_eq!(case.holder().await, None);
}

/// A claim that arrives again after its grant was released does not take the key.
pub async fn a_released_nonce_is_not_granted_again<F: Fixture>(case: Case<F>) {
    let claim = case.claim("a");
    let grant = case.obtain(&claim).await;
    case.release(&grant).await;

    drop(expect_held(case.ask(&claim).await));

    assert_eq!(case.holder().await, None);
}

/// A key that was released for later is granted to nobody before, and to anybody then.
pub async fn a_reserved_key_is_granted_to_nobody_for_its_time<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    let since = case.now();
    let released = case.store.release(&grant, Some(case.ttl)).await;
    assert!(released.is_ok(), "{released:?}");

    let (_, taken) = case.taken_over("a").await;

    case.not_before_ttl(taken, since);
}

/// A watch that was registered before a release wakes. Stores that cannot wake say so.
pub async fn a_watch_wakes_on_release<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    let Ok(freed) = case.store.watch(&grant.key).await else {
        return;
    };
    if !freed.can_wake() {
        return;
    }

    case.release(&grant).await;

    let woken = tokio::time::timeout(Duration::from_secs(60), freed).await;
    assert!(woken.is_ok(), "not woken within a minute of the release");
    // A watch says that it is worth asking.
    assert!(matches!(case.ask(&case.claim("b")).await, Obtained::Granted(..)));
}
