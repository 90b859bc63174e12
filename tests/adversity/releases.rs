//! Releases of what is lost, busy or out of bounds.

use std::time::Duration;

use lease_core::conformance::{Fault, Faulty};
use lease_core::{BootClock, Clock, LeaseOptions, Locker, StoreErrorKind};
use lease_memory::MemoryStore;

use crate::{TTL, key, obtained, soon};

#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_was_dropped_and_not_for_what_others_do() {
    let locker = Locker::new(MemoryStore::new());
    let busy = tokio::spawn({
        let locker = locker.clone();
        async move {
            loop {
                drop(locker.obtain(&key("busy")).await.unwrap());
                tokio::task::yield_now().await;
            }
        }
    });
    drop(obtained(&locker, "job").await);

    soon(locker.close()).await;

    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn a_release_of_what_was_lost_answers_at_once() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.choose(|_| Some(Fault::Hang));
    lease.lost().await;
    let start = BootClock::new().now();

    lease.release().await.unwrap();

    assert_eq!(BootClock::new().now().since(start), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn lengths_without_bounds_are_refused_or_borne() {
    let locker = Locker::new(MemoryStore::new());
    let refused = obtained(&locker, "job").await.release_reserved(Duration::MAX).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    locker.close().await;
    assert!(locker.obtain(&key("job")).await.unwrap().lease().is_some());

    let options = LeaseOptions::default();
    assert_eq!(options.trusted(TTL, Duration::MAX), Duration::ZERO);
    assert!(options.trusted(Duration::MAX, Duration::ZERO) > TTL);
}
