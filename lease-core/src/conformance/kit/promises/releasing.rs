//! What frees a key, and what does not.

use std::time::Duration;

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_granted, expect_held};
use crate::store::lock_store::LockStore;

/// A released key is granted to the next who asks.
pub async fn released_key_is_free_at_once<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;

    case.release(&grant).await;

    case.granted("b").await;
}

/// A former holder's release leaves the key to its holder.
pub async fn release_by_former_holder_changes_nothing<F: Fixture>(case: Case<F>) {
    let former = case.granted("a").await;
    case.pass(case.ttl).await;
    let (current, _) = case.taken_over("b").await;

    case.release(&former).await;

    case.has_holder(&current.lessee, "a former holder's release should change nothing").await;
}

/// A release that is sent twice is harmless.
pub async fn second_release_is_harmless<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.release(&grant).await;

    case.release(&grant).await;

    case.has_no_holder("two releases").await;
}

/// A claim that arrives again after its grant was released does not take the key.
pub async fn released_nonce_is_not_granted_again<F: Fixture>(case: Case<F>) {
    let claim = case.claim("a");
    let grant = case.obtain(&claim).await;
    case.release(&grant).await;

    drop(expect_held(case.ask(&claim).await, "a claim whose own grant was released"));

    case.has_no_holder("a release, and its claim once more").await;
}

/// A key that was released for later is granted to nobody before, and to anybody then.
pub async fn reserved_key_is_granted_to_nobody_for_its_time<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    let since = case.now();
    let released = case.store.release(&grant, Some(case.ttl)).await;
    assert!(released.is_ok(), "the store should answer a release: {released:?}");

    let (_, taken) = case.taken_over("a").await;

    case.not_before_ttl(taken, since);
}

/// A key that is reserved is not granted, and yet nobody holds it.
pub async fn reserved_key_has_no_holder<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    let released = case.store.release(&grant, Some(case.fixture.long_ttl())).await;
    assert!(released.is_ok(), "the store should answer a release: {released:?}");
    drop(expect_held(case.ask(&case.claim("b")).await, "a claim of a reserved key"));

    case.has_no_holder("a release that reserved the key: nobody holds it").await;
}

/// A watch that was registered before a release wakes. Stores that cannot wake say so.
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
         one that `can_wake` denies"
    );
    // A watch says that it is worth asking.
    drop(expect_granted(case.ask(&case.claim("b")).await, "a key whose release woke a watch"));
}
