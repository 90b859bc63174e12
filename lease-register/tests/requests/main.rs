//! How many requests an operation makes, and what it answers if requests conflict or are lost.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod counting;
mod outdated;

use std::time::Duration;

use lease_core::store::{Beat, Claim, Grant, Heartbeat, LeaseTable, LockStore, Nonce, Obtained};
use lease_core::{Change, StoreErrorKind, Written};
use lease_register::conformance::MemoryRegister;
use lease_register::{Register, RegisterStore};
use tokio::time::timeout;

use crate::counting::{Counting, Fate};

#[tokio::test]
async fn requests_of_each_operation_are_counted() {
    let store = Counting::store(MemoryRegister::opaque());
    let sent = || store.register().take_sent();

    let first = granted(&store, &claim("a")).await;
    assert_eq!(sent(), ["read", "replace"], "a claim at first contact");
    assert_eq!(store.heartbeat(&first, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    assert_eq!(sent(), ["replace"], "a heartbeat");
    let change = Change::new().set("sky", "grey");
    assert_eq!(store.update(&first, &change).await.unwrap(), Written::Applied);
    assert_eq!(sent(), ["replace"], "an update");
    store.release(&first, None).await.unwrap();
    assert_eq!(sent(), ["replace"], "a release");
    granted(&store, &claim("b")).await;
    assert_eq!(sent(), ["replace"], "a claim after a release");
    held(&store, &claim("c")).await;
    assert_eq!(sent(), ["read"], "a claim of a key that is held");
}

#[tokio::test]
async fn new_key_with_growing_versions_needs_one_request_more() {
    let store = Counting::store(MemoryRegister::growing());

    granted(&store, &claim("a")).await;

    assert_eq!(store.register().take_sent(), ["read", "replace", "replace"]);
}

/// The client's second request conflicts with its own first one.
#[tokio::test]
async fn write_that_a_client_repeats_is_recognised() {
    let store = Counting::store(MemoryRegister::growing());
    store.register().set(Fate::Repeats);

    let grant = granted(&store, &claim("a")).await;
    let heartbeat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    let to = "b".parse().unwrap();
    let transferred = store.transfer(&grant, &to, Duration::from_secs(9)).await.unwrap();

    assert_eq!((heartbeat, transferred), (Heartbeat::Extended, Written::Applied));
}

#[tokio::test]
async fn unanswered_heartbeat_is_followed_by_a_read() {
    let store = Counting::store(MemoryRegister::opaque());
    let grant = granted(&store, &claim("a")).await;
    store.register().set(Fate::LosesAnswers);
    assert!(store.heartbeat(&grant, Beat::new(1)).await.is_err());
    store.register().set(Fate::Sound);
    store.register().take_sent();

    let heartbeat = store.heartbeat(&grant, Beat::new(2)).await.unwrap();

    assert_eq!(heartbeat, Heartbeat::Extended);
    assert_eq!(store.register().take_sent(), ["read", "replace"]);
}

/// The service has forgotten the version, so each watch of it ends at once. The locker then pauses before its claim.
#[tokio::test]
async fn wake_without_a_change_ends_the_watch() {
    let store = Counting::store(MemoryRegister::opaque());
    let grant = granted(&store, &claim("a")).await;
    store.register().set(Fate::WakesAtOnce);
    store.register().take_sent();

    store.watch(&grant.key).await.unwrap().await;

    assert_eq!(store.register().take_sent(), ["watch", "read"]);
}

/// Attempts end after some conflicts: a claim is refused, and a heartbeat has no answer.
#[tokio::test(start_paused = true)]
async fn record_that_changes_all_the_time_ends_a_request() {
    let store = Counting::store(MemoryRegister::opaque());
    let grant = granted(&store, &claim("a")).await;
    store.register().set(Fate::Conflicts);

    let heartbeat = store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
    store.register().set(Fate::Sound);
    store.release(&grant, None).await.unwrap();
    store.register().set(Fate::Conflicts);

    assert_eq!(heartbeat.kind(), StoreErrorKind::Throttled);
    held(&store, &claim("b")).await;
}

#[tokio::test(start_paused = true)]
async fn heartbeat_wakes_no_waiter_and_release_does() {
    let register = MemoryRegister::opaque();
    let (store, waiting) = (RegisterStore::new(register.clone()), RegisterStore::new(register));
    let grant = granted(&store, &claim("a")).await;
    let mut freed = waiting.watch(&grant.key).await.unwrap();

    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    let woken = timeout(Duration::from_secs(60), &mut freed).await;
    assert!(woken.is_err(), "a heartbeat does not free the key");
    store.release(&grant, None).await.unwrap();

    let woken = timeout(Duration::from_secs(60), freed).await;
    assert!(woken.is_ok(), "a release frees the key");
}

#[tokio::test(start_paused = true)]
async fn one_key_too_many_costs_few_reads() {
    let register = Counting::new(MemoryRegister::opaque());
    let store = RegisterStore::builder(register).with_observed_keys(100).build().unwrap();
    let mut grants = Vec::new();
    for number in 0..=100 {
        grants.push(granted(&store, &claim_of(&format!("job-{number}"), "a")).await);
    }
    store.register().take_sent();

    for beat in 1..=10 {
        for grant in &grants {
            let heartbeat = store.heartbeat(grant, Beat::new(beat)).await.unwrap();
            assert_eq!(heartbeat, Heartbeat::Extended);
        }
    }

    let sent = store.register().take_sent();
    let reads = sent.iter().filter(|sent| **sent == "read").count();
    assert!(reads < 505, "{reads} reads for 1010 heartbeats");
}

/// Without the last decision, the locker would believe that the key is held by another lessee.
#[tokio::test(start_paused = true)]
async fn record_of_the_last_conflict_is_decided() {
    let store = Counting::store(MemoryRegister::opaque());
    store.register().set(Fate::ConflictsWithItself);

    granted(&store, &claim("a")).await;

    let sent = store.register().take_sent();
    assert_eq!(sent.iter().filter(|sent| **sent == "replace").count(), 7);
}

#[tokio::test(start_paused = true)]
async fn reservation_without_end_is_kept() {
    for register in [MemoryRegister::opaque(), MemoryRegister::opaque().with_dates()] {
        let store = RegisterStore::new(register);
        let grant = granted(&store, &claim("a")).await;
        let to = "b".parse().unwrap();

        let transferred = store.transfer(&grant, &to, Duration::MAX).await.unwrap();

        assert_eq!(transferred, Written::Applied);
        held(&store, &claim("c")).await;
        granted(&store, &claim("b")).await;
    }
}

fn claim(lessee: &str) -> Claim {
    claim_of("job", lessee)
}

fn claim_of(key: &str, lessee: &str) -> Claim {
    let (key, lessee) = (key.parse().unwrap(), lessee.parse().unwrap());
    Claim::new(key, lessee, Nonce::random(), Duration::from_secs(30))
}

async fn granted<R: Register>(store: &RegisterStore<R>, claim: &Claim) -> Grant {
    match store.obtain(claim).await.unwrap() {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    }
}

async fn held<R: Register>(store: &RegisterStore<R>, claim: &Claim) {
    let obtained = store.obtain(claim).await.unwrap();
    assert!(matches!(obtained, Obtained::Held(_)), "{obtained:?}");
}
