//! Promises for two handles on the same data, such as those of two processes.

use std::sync::Arc;
use std::time::Duration;

use crate::conformance::Fixture;
use crate::conformance::kit::case::{
    Case, evicted_by, expect_granted, expect_held, name, scanned_by,
};
use crate::conformance::kit::race::at_once;
use crate::key::LeaseKey;
use crate::lost::LossCause;
use crate::store::grant::{Beat, Claim, Grant, Heartbeat, Obtained};
use crate::store::lock_store::LockStore;

/// Of two claims that arrive at once through two handles, at most one is granted.
pub async fn claims_through_two_handles_grant_one<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    for (round, race) in case.races() {
        let key = name(&format!("conformance/claims-{round}"));
        let [one, other] = ["a", "b"].map(|lessee| case.long_claim(&key, lessee));

        let obtain = |store: &Arc<F::Store>, claim: &Claim| {
            let (store, claim) = (Arc::clone(store), claim.clone());
            async move { store.obtain(&claim).await }
        };
        let answers = at_once(race, obtain(&first, &one), obtain(&second, &other)).await;

        let grants = grants_in([answers.0, answers.1]);
        assert!(
            grants.len() < 2,
            "two claims that arrived at once through two handles were both granted: the store \
             should check that the key is free and write the grant in one atomic step, in the \
             data itself; a lock inside the process excludes no other process: {grants:?}"
        );
        if grants.is_empty() {
            // A quorum grants neither claim if the votes are split. Then a later claim must be granted.
            case.taken_over_by(&one).await;
        }
    }
}

/// Of two adoptions of one grant that arrive at once through two handles, at most one succeeds.
pub async fn adoptions_through_two_handles_grant_one<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    for (round, race) in case.races() {
        let key = name(&format!("conformance/adoptions-{round}"));
        let handed = case.obtain(&case.long_claim(&key, "a")).await;
        let [one, other] = ["b", "c"].map(|lessee| case.long_claim(&key, lessee));

        let adopt = |store: &Arc<F::Store>, claim: Claim| {
            let (store, handed) = (Arc::clone(store), handed.clone());
            async move { store.adopt(&handed, &claim).await }
        };
        let answers = at_once(race, adopt(&first, one), adopt(&second, other)).await;

        let grants = grants_in([answers.0, answers.1]);
        assert!(
            grants.len() < 2,
            "one grant was adopted twice, through two handles at once: the store should check \
             that the grant is current and replace it in one atomic step: {grants:?}"
        );
    }
}

/// A heartbeat that arrives together with the release of its grant does not undo the release.
pub async fn release_through_second_handle_is_final<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    for (round, race) in case.races() {
        let key = name(&format!("conformance/releases-{round}"));
        let grant = case.obtain(&case.long_claim(&key, "a")).await;

        let (holder, releaser) = (Arc::clone(&first), Arc::clone(&second));
        let (held, freed) = (grant.clone(), grant);
        let (heartbeat, released) =
            at_once(race, async move { holder.heartbeat(&held, Beat::new(1)).await }, async move {
                releaser.release(&freed, None).await
            })
            .await;

        assert!(heartbeat.is_ok(), "the store should answer a heartbeat: {heartbeat:?}");
        assert!(released.is_ok(), "the store should answer a release: {released:?}");
        let holder = case.holder_of(&key).await;
        assert_eq!(
            holder, None,
            "a heartbeat that arrived together with a release undid the release: the store should \
             check that the grant is current and extend it in one atomic step"
        );
    }
}

/// A handle reads a grant as soon as another handle has written it.
pub async fn grant_is_seen_through_second_handle<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    let key = case.key();
    let before = second.holder(&key).await;
    assert!(matches!(before, Ok(None)), "a free key should have no holder: {before:?}");

    let grant = granted_by(&*first, &case, &key, "a").await;

    let holder = holder_read_by(&*second, &key).await;
    assert_eq!(
        holder.as_deref(),
        Some("a"),
        "`holder` of the second handle should name the lessee that the first handle granted the \
         key to: it should read the shared data, not a copy of its own"
    );
    let claim = case.long_claim(&key, "b");
    drop(expect_held(
        second.obtain(&claim).await.unwrap_or_else(|error| no_answer("a claim", &error)),
        "a key that was granted through another handle",
    ));
    let released = second.release(&grant, None).await;
    assert!(released.is_ok(), "the store should answer a release: {released:?}");
    let answer = first.heartbeat(&grant, Beat::new(1)).await;
    assert!(
        matches!(answer, Ok(Heartbeat::Lost(_))),
        "the first handle should answer `Lost` for a grant that the second handle released: {answer:?}"
    );
}

/// Tokens grow from grant to grant, across all handles.
pub async fn tokens_grow_across_handles<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    let key = case.key();
    let mut last = None;
    for store in [&first, &second, &first, &second] {
        let grant = granted_by(&**store, &case, &key, "a").await;

        assert!(
            Some(grant.token) > last,
            "the token after {last:?} was {}: the counter should be kept in the shared data, so \
             that it grows across all handles",
            grant.token
        );

        last = Some(grant.token);
        let released = store.release(&grant, None).await;
        assert!(released.is_ok(), "the store should answer a release: {released:?}");
    }
}

/// A claim whose grant was released through one handle is not granted again through another handle.
pub async fn released_nonce_is_refused_through_second_handle<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    let claim = case.claim("a");
    let answer = first.obtain(&claim).await;
    let grant =
        expect_granted(answer.unwrap_or_else(|error| no_answer("a claim", &error)), "a free key");
    let released = first.release(&grant, None).await;
    assert!(released.is_ok(), "the store should answer a release: {released:?}");

    let late = second.obtain(&claim.repeated()).await;

    let late = late.unwrap_or_else(|error| no_answer("a claim", &error));
    case.is_refused_or_expires(late, &grant).await;
}

/// A late heartbeat through another handle changes nothing.
pub async fn late_heartbeat_through_second_handle_is_overtaken<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    let grant = granted_by(&*first, &case, &case.key(), "a").await;
    let newer = first.heartbeat(&grant, Beat::new(2)).await;
    assert!(
        matches!(newer, Ok(Heartbeat::Extended)),
        "the store should extend the current grant: {newer:?}"
    );

    let late = second.heartbeat(&grant, Beat::new(1)).await;

    assert!(
        matches!(late, Ok(Heartbeat::Overtaken)),
        "heartbeat 1 arrived through the second handle after heartbeat 2 through the first: the \
         store should keep the number of the last heartbeat in the shared data, and answer \
         Overtaken: {late:?}"
    );
}

/// A heartbeat is `Lost` after another handle has released its grant and has granted the key again.
pub async fn takeover_through_second_handle_ends_first_grant<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    let key = case.key();
    let former = granted_by(&*first, &case, &key, "a").await;
    let released = second.release(&former, None).await;
    assert!(released.is_ok(), "the store should answer a release: {released:?}");
    granted_by(&*second, &case, &key, "b").await;

    let answer = first.heartbeat(&former, Beat::new(1)).await;

    assert!(
        matches!(answer, Ok(Heartbeat::Lost(LossCause::Superseded))),
        "the key was granted to another lessee through the second handle: the first handle should \
         answer Lost(Superseded): {answer:?}"
    );
    let holder = holder_read_by(&*first, &key).await;
    assert_eq!(holder.as_deref(), Some("b"), "the refused heartbeat should leave the key alone");
}

/// A watch wakes on a release through another handle, if the store can wake watches.
pub async fn watch_wakes_on_release_through_second_handle<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    let key = case.key();
    let grant = granted_by(&*second, &case, &key, "a").await;
    let Ok(freed) = first.watch(&key).await else { return };
    if !freed.can_wake() {
        return;
    }

    let released = second.release(&grant, None).await;

    assert!(released.is_ok(), "the store should answer a release: {released:?}");
    let woken = tokio::time::timeout(Duration::from_secs(60), freed).await;
    assert!(
        woken.is_ok(),
        "a watch did not wake within a minute of a release through another handle: the store \
         should notify other processes, or return a watch whose `can_wake` is false"
    );
}

/// An eviction through one handle ends a lease that was granted through another handle.
pub async fn eviction_through_second_handle_ends_lease<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    let key = case.key();
    let grant = granted_by(&*first, &case, &key, "a").await;
    if !evicted_by(&*second, &key).await {
        return;
    }

    let answer = first.heartbeat(&grant, Beat::new(1)).await;

    assert!(
        matches!(answer, Ok(Heartbeat::Lost(LossCause::Revoked))),
        "the holder should learn of an eviction through another handle at its next heartbeat: \
         {answer:?}"
    );
}

/// A scan through one handle lists keys that were granted through another handle.
pub async fn scan_lists_grants_of_second_handle<F: Fixture>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    let key = case.key();
    granted_by(&*first, &case, &key, "a").await;

    let Some(scanned) = scanned_by(&*second, key.as_str()).await else { return };

    let lessees: Vec<_> = scanned.iter().map(|held| held.holder.lessee.as_str()).collect();
    assert_eq!(lessees, ["a"], "a scan should read the shared data: {scanned:?}");
}

fn grants_in<E: std::fmt::Debug>(answers: [Result<Obtained, E>; 2]) -> Vec<Grant> {
    let mut grants = Vec::new();
    for answer in answers {
        match answer {
            Ok(Obtained::Granted(grant, _)) => grants.push(grant),
            Ok(Obtained::Held(_)) => (),
            Err(error) => no_answer("both of two concurrent requests", &error),
        }
    }
    grants
}

async fn granted_by<F: Fixture>(
    store: &F::Store,
    case: &Case<F>,
    key: &LeaseKey,
    lessee: &str,
) -> Grant {
    let answer = store.obtain(&case.long_claim(key, lessee)).await;
    expect_granted(answer.unwrap_or_else(|error| no_answer("a claim", &error)), "a free key")
}

async fn holder_read_by(store: &impl LockStore, key: &LeaseKey) -> Option<String> {
    match store.holder(key).await {
        Ok(holder) => holder.map(|holder| holder.lessee.as_str().to_owned()),
        Err(error) => no_answer("a read of the holder", &error),
    }
}

#[expect(clippy::panic, reason = "a panic reports a broken promise")]
#[track_caller]
fn no_answer<T>(request: &str, error: &impl std::fmt::Debug) -> T {
    panic!("the store should answer {request}: {error:?}")
}
