//! Single attempts to obtain a key.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_core::{Attempt, Lease, LeaseOptions, Locker, StoreErrorKind};
use lease_memory::MemoryStore;
use tokio::time::timeout;

use crate::{TTL, key, obtained};

#[tokio::test(start_paused = true)]
async fn held_key_returns_its_holder() {
    let store = MemoryStore::new();
    let (one, two) = (Locker::new(store.clone()), Locker::new(store));
    let lease = obtained(&one, "job").await;

    let Attempt::Held(holder) = two.obtain(&key("job")).await.unwrap() else {
        panic!("a held key was granted")
    };

    assert_eq!((&holder.lessee, holder.token), (lease.lessee(), Some(lease.token())));
    assert!(holder.expires_in.unwrap() <= TTL);
}

#[tokio::test(start_paused = true)]
async fn obtain_any_spreads_lessees_over_the_keys() {
    let store = MemoryStore::new();
    let keys: Vec<_> = (0..8).map(|number| key(&format!("shard-{number}"))).collect();
    let lockers: Vec<_> = (0..8).map(|_| Locker::new(store.clone())).collect();

    let mut leases = Vec::new();
    for locker in &lockers {
        leases.push(locker.obtain_any(&keys).await.unwrap().unwrap());
    }

    let mut held: Vec<_> = leases.iter().map(Lease::key).cloned().collect();
    held.sort();
    assert_eq!(held, keys);
    assert!(lockers.first().unwrap().obtain_any(&keys).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn failed_attempt_leaves_no_grant_although_it_was_applied() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::LoseReply);

    let error = locker.obtain(&key("job")).await.unwrap_err();
    locker.close().await;

    assert!(error.is_retryable());
    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

/// The attempt finishes on a spawned task, whose cleanup is a second task. The second task must
/// still release the grant.
#[tokio::test(start_paused = true)]
async fn close_waits_for_the_cleanup_of_a_dropped_attempt() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::LoseReply);
    store.every(Call::Release, Fault::DelayRequest(Duration::from_millis(100)));

    let job = key("job");
    let obtaining = timeout(Duration::ZERO, locker.obtain(&job));
    obtaining.await.unwrap_err();
    locker.close().await;

    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn hanging_store_is_reported_as_unavailable() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.every(Call::Obtain, Fault::Hang);
    store.every(Call::Read, Fault::Hang);

    let error = locker.obtain(&key("job")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let error = locker.holder(&key("job")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    timeout(TTL * 2, locker.close()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn options_of_one_locker_do_not_affect_another() {
    let store = MemoryStore::new();
    let usual = Locker::new(store);
    let short = usual.clone().with_options(LeaseOptions::new(Duration::from_secs(1)).unwrap());

    let lease = obtained(&short, "job").await;
    let other = obtained(&usual, "other").await;

    assert!(lease.remaining() < Duration::from_secs(1));
    assert!(other.remaining() > Duration::from_secs(29));
}
