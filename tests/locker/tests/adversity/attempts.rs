//! Attempts after one whose outcome is unknown.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{Beat, Claim, Freed, Grant, Heartbeat, LockStore, Obtained};
use lease_core::{Holder, LeaseKey, Locker, StoreError, StoreErrorKind};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, key, obtained};

#[tokio::test(start_paused = true)]
async fn an_attempt_goes_on_with_the_claim_of_the_one_that_failed() {
    let store = Faulty::new(MemoryStore::counting_from_one());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::LoseReply);

    assert!(locker.obtain(&key("job")).await.is_err());
    let lease = obtained(&locker, "job").await;

    assert_eq!(lease.token().get(), 1, "it was granted twice");
    sleep(TTL).await;
    assert!(lease.is_held());
    assert_eq!(store.calls(Call::Obtain), 2);
}

#[tokio::test(start_paused = true)]
async fn attempts_on_a_store_that_is_down_do_not_pile_up() {
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
    assert!(lease.is_held(), "held by an attempt that nobody waits for");
}

/// Fails at the first claim, hangs at the second, and counts how many it is asked at once.
#[derive(Debug, Default)]
struct Reluctant {
    store: MemoryStore,
    asked: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl LockStore for Reluctant {
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

/// A request that fails may take back what it was granted; on a quorum, that was what the other
/// request for the same claim had just been told.
#[tokio::test(start_paused = true)]
async fn who_clears_up_no_longer_asks_once_another_attempt_goes_on_with_the_claim() {
    let store = Arc::new(Reluctant::default());
    let locker = Locker::new(Arc::clone(&store));
    assert!(locker.obtain(&key("job")).await.is_err());
    sleep(TTL / 10).await;
    assert_eq!(store.asked.load(Ordering::SeqCst), 2, "nobody clears up");

    let lease = obtained(&locker, "job").await;

    assert!(lease.is_held());
    assert_eq!(store.most.load(Ordering::SeqCst), 1, "asked twice at once");
}
