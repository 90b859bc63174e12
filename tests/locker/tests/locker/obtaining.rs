//! Obtaining a key at once, or not.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_core::{Attempt, Lease, LeaseOptions, Locker, StoreErrorKind};
use lease_memory::MemoryStore;
use tokio::time::timeout;

use crate::{TTL, key, obtained};

#[tokio::test(start_paused = true)]
async fn a_held_key_is_a_value_with_its_holder() {
    let store = MemoryStore::new();
    let (one, two) = (Locker::new(store.clone()), Locker::new(store));
    let lease = obtained(&one, "job").await;

    let Attempt::Held(holder) = two.obtain(&key("job")).await.unwrap() else {
        panic!("obtained twice")
    };

    assert_eq!((&holder.lessee, holder.token), (lease.lessee(), lease.token()));
    assert!(holder.expires_in.unwrap() <= TTL);
}

#[tokio::test(start_paused = true)]
async fn any_of_many_keys_spreads_lessees_out() {
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
async fn an_attempt_that_failed_after_it_was_applied_leaves_nothing_behind() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::LoseReply);

    let error = locker.obtain(&key("job")).await.unwrap_err();
    locker.close().await;

    assert!(error.is_retryable());
    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

/// Its caller is gone before the answer is known to be lost: what clears up is not the first to be
/// waited for, and what that was granted has yet to be released.
#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_clears_up_after_an_attempt_that_was_dropped() {
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
async fn a_store_that_hangs_is_a_store_that_did_not_answer() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.every(Call::Obtain, Fault::Hang);
    store.every(Call::Read, Fault::Hang);

    let error = locker.obtain(&key("job")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let error = locker.holder(&key("job")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    // What nobody can know any more is given up a ttl later.
    timeout(TTL * 2, locker.close()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn options_of_one_locker_do_not_reach_another() {
    let store = MemoryStore::new();
    let usual = Locker::new(store);
    let short = usual.clone().with_options(LeaseOptions::new(Duration::from_secs(1)).unwrap());

    let lease = obtained(&short, "job").await;
    let other = obtained(&usual, "other").await;

    assert!(lease.remaining() < Duration::from_secs(1));
    assert!(other.remaining() > Duration::from_secs(29));
}
