//! Waiting until a key is obtained.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::conformance::{Call, Faulty};
use lease_core::store::LockStore;
use lease_core::{Locker, StoreErrorKind};
use lease_memory::MemoryStore;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::{key, obtained};

#[tokio::test(start_paused = true)]
async fn waiters_of_one_process_obtain_in_order_and_one_contends() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let first = obtained(&locker, "job").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..64 {
        let (locker, order) = (locker.clone(), Arc::clone(&order));
        waiters.spawn(async move {
            let lease = locker.wait_until_obtained(&key("job")).await.unwrap();
            order.lock().unwrap().push(number);
            lease.release().await.unwrap();
        });
        yield_now().await;
    }
    let before = store.calls(Call::Obtain);
    sleep(Duration::from_secs(1)).await;
    assert!(store.calls(Call::Obtain) <= before + 1, "more than one waiter contends");

    first.release().await.unwrap();
    waiters.join_all().await;

    assert_eq!(*order.lock().unwrap(), (0..64).collect::<Vec<_>>());
    assert!(store.calls(Call::Obtain) <= before + 66, "{}", store.calls(Call::Obtain));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_any_obtains_one_key_if_several_become_free() {
    let store = MemoryStore::new();
    let (holder, waiter) = (Locker::new(store.clone()), Locker::new(store.clone()));
    let keys = [key("a"), key("b"), key("c")];
    let mut held = Vec::new();
    for key in &keys {
        held.push(holder.obtain(key).await.unwrap().into_lease().unwrap());
    }

    let release = async {
        sleep(Duration::from_secs(5)).await;
        drop(held);
    };
    let (lease, ()) = tokio::join!(waiter.wait_until_any_obtained(&keys), release);
    let lease = lease.unwrap();
    waiter.close().await;

    for key in &keys {
        let holder = store.holder(key).await.unwrap();
        assert_eq!(holder.is_some(), key == lease.key(), "{key}");
    }
    let refused = waiter.wait_until_any_obtained(&[]).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_lockers_on_many_threads_hold_one_key_one_at_a_time() {
    let store = MemoryStore::new();
    let lockers: Vec<_> = (0..8).map(|_| Locker::new(store.clone())).collect();
    let inside = Arc::new(AtomicUsize::new(0));
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut turns = JoinSet::new();
    for locker in lockers.iter().flat_map(|locker| (0..50).map(|_| locker.clone())) {
        let (inside, tokens) = (Arc::clone(&inside), Arc::clone(&tokens));
        turns.spawn(async move {
            let lease = locker.wait_until_obtained(&key("job")).await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two lockers hold one key");
            tokens.lock().unwrap().push(lease.token());
            yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
        });
    }

    timeout(Duration::from_mins(5), turns.join_all()).await.unwrap();

    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 400);
    assert!(tokens.is_sorted_by(|one, next| one < next));
}
