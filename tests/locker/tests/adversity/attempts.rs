//! Attempts that follow an attempt with an unknown outcome.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{Beat, Claim, Freed, Grant, Heartbeat, LockStore, Obtained};
use lease_core::{Attempt, Holder, LeaseKey, Locker, StoreError, StoreErrorKind};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, key, obtained};

#[tokio::test(start_paused = true)]
async fn attempt_after_a_lost_reply_reuses_the_claim() {
    let store = Faulty::new(MemoryStore::counting_from_one());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::LoseReply);

    assert!(locker.obtain(&key("job")).await.is_err());
    let lease = obtained(&locker, "job").await;

    assert_eq!(lease.token().get(), 1, "the key was granted twice");
    sleep(TTL).await;
    assert!(lease.is_held());
    assert_eq!(store.calls(Call::Obtain), 2);
}

/// An unanswered request may be granted after a later request of the same claim was refused.
#[tokio::test(start_paused = true)]
async fn late_grant_after_a_refusal_is_recognised() {
    let store = Faulty::new(MemoryStore::new());
    let (locker, other) = (Locker::new(store.clone()), Locker::new(store.inner()));
    let held = obtained(&other, "job").await;
    store.next(Call::Obtain, Fault::ApplyLate(TTL / 8));
    assert!(locker.obtain(&key("job")).await.is_err());
    assert!(matches!(locker.obtain(&key("job")).await, Ok(Attempt::Held(_))));
    held.release().await.unwrap();
    sleep(TTL / 4).await;

    let attempt = locker.obtain(&key("job")).await.unwrap();

    assert!(
        matches!(attempt, Attempt::Obtained(_)),
        "the locker's own claim holds the key: {attempt:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn attempts_on_a_failed_store_do_not_accumulate() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.every(Call::Obtain, Fault::Fail);
    for _ in 0..200 {
        assert!(locker.obtain(&key("job")).await.is_err());
        sleep(Duration::from_millis(100)).await;
    }
    let asked = store.calls(Call::Obtain);
    assert!(asked <= 210, "{asked} requests for 200 attempts");

    store.heal();
    let lease = obtained(&locker, "job").await;
    assert!(lease.is_held(), "an abandoned attempt holds the key");
}

#[derive(Debug, Default)]
struct FailsThenHangs {
    store: MemoryStore,
    asked: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl LockStore for FailsThenHangs {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        struct Asking<'a>(&'a AtomicUsize);
        impl Drop for Asking<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }

        let at_once = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        let _asking = Asking(&self.now);
        self.most.fetch_max(at_once, Ordering::SeqCst);
        match self.asked.fetch_add(1, Ordering::SeqCst) {
            0 => Err(StoreError::new(StoreErrorKind::Unavailable, "not yet")),
            1 => pending().await,
            _ => self.store.obtain(claim).await,
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.store.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }
}

/// On a quorum, a failed request may withdraw its claim's votes. The withdrawal would end the grant
/// of a concurrent request for the same claim.
#[tokio::test(start_paused = true)]
async fn cleanup_stops_once_another_attempt_reuses_its_claim() {
    let store = Arc::new(FailsThenHangs::default());
    let locker = Locker::new(Arc::clone(&store));
    assert!(locker.obtain(&key("job")).await.is_err());
    sleep(TTL / 10).await;
    assert_eq!(store.asked.load(Ordering::SeqCst), 2, "the failed attempt has no cleanup");

    let lease = obtained(&locker, "job").await;

    assert!(lease.is_held());
    assert_eq!(store.most.load(Ordering::SeqCst), 1, "two claims at a time");
}
