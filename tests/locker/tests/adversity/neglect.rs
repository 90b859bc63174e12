//! Futures that are kept and not polled, and tasks that are aborted.

use std::time::Duration;

use futures_util::{FutureExt, poll};
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{BootClock, Clock, LockStore};
use lease_core::{Locker, StoreErrorKind};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, key, obtained, soon};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn unpolled_attempt_holds_its_key_for_a_ttl_at_most() {
    let store = Faulty::new(MemoryStore::new());
    let (locker, other) = (Locker::new(store.clone()), Locker::new(store.clone()));
    let job = key("job");
    let start = BootClock::new().now();
    store.next(Call::Obtain, Fault::DelayReply(SECOND));
    let mut kept = Box::pin(locker.obtain(&job));
    assert!(poll!(&mut kept).is_pending());
    sleep(SECOND).await;
    assert!(store.holder(&job).await.unwrap().is_some(), "the key was not granted");

    let next = soon(other.wait_until_obtained(&job)).await.unwrap();

    let took = BootClock::new().now().since(start);
    assert!(took <= TTL + SECOND, "{took:?}");
    assert_eq!(kept.await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    locker.close().await;
    let holder = store.holder(&job).await.unwrap().unwrap();
    assert_eq!((&holder.lessee, holder.token), (other.lessee(), Some(next.token())));
}

#[tokio::test(start_paused = true)]
async fn close_waits_at_most_a_request_timeout_for_unpolled_attempt() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let job = key("job");
    store.next(Call::Obtain, Fault::Hang);
    let mut kept = Box::pin(locker.obtain(&job));
    assert!(poll!(&mut kept).is_pending());
    let start = BootClock::new().now();

    soon(locker.close()).await;

    let took = BootClock::new().now().since(start);
    assert!(took <= locker.options().request_timeout() + SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_attempt_of_an_aborted_task() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::DelayReply(SECOND));
    let task = tokio::spawn({
        let locker = locker.clone();
        async move { locker.obtain(&key("job")).await }
    });
    tokio::task::yield_now().await;

    // `abort` only schedules the drop, so the attempt still exists when `close` begins.
    task.abort();
    soon(locker.close()).await;

    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn unpolled_release_frees_its_key_and_its_place_in_the_queue() {
    let locker = Locker::new(Faulty::new(MemoryStore::new()));
    let first = locker.wait_until_obtained(&key("job")).await.unwrap();
    let start = BootClock::new().now();

    let mut kept = Box::pin(first.release());
    assert!(poll!(&mut kept).is_pending());
    let second = soon(locker.wait_until_obtained(&key("job"))).await.unwrap();

    assert!(second.is_held());
    assert_eq!(BootClock::new().now().since(start), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn panic_of_the_store_is_an_error_of_the_attempt() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.choose(|_| panic!("a bug in the store"));

    let error = locker.obtain(&key("job")).await.unwrap_err();
    store.heal();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    soon(locker.close()).await;
    assert!(obtained(&locker, "job").await.is_held());
}

#[tokio::test(start_paused = true)]
async fn free_key_is_obtained_without_another_task() {
    let locker = Locker::new(MemoryStore::new());

    let attempt = locker.obtain(&key("job")).now_or_never();

    assert!(attempt.unwrap().unwrap().into_lease().is_some());
}
