//! Outages of the store, and claims that lockers send during an outage.

use std::time::Duration;

use futures_util::future::join;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{BootClock, Clock, LockStore};
use lease_core::{LeaseOptions, Locker};
use lease_memory::MemoryStore;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::key;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// Requests that are sent during the outage arrive after it, in the same order.
fn silence(store: &Faulty<MemoryStore>, length: Duration) {
    let until = BootClock::new().now() + length;
    let mut requests = 0;
    store.choose(move |_call| {
        let left = until.since(BootClock::new().now());
        requests += 1;
        (!left.is_zero()).then(|| Fault::DelayRequest(left + MILLISECOND * requests))
    });
}

#[tokio::test(start_paused = true)]
async fn free_key_is_granted_within_one_retry_after_any_silence() {
    for tenths in [1, 4, 6, 9, 11, 15, 40] {
        let store = Faulty::new(MemoryStore::new());
        let locker = Locker::new(store.clone());
        let length = TTL * tenths / 10;
        silence(&store, length);
        let start = BootClock::new().now();

        let lease = locker.wait_until_obtained(&key("job")).await.unwrap();

        // A retry comes after at most 5 s, and sends a claim and a heartbeat.
        let took = BootClock::new().now().since(start);
        assert!(took <= length + SECOND * 6, "{took:?} with a silence of {length:?}");
        sleep(TTL * 2).await;
        assert!(lease.is_held(), "after a silence of {length:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_each_of_two_claims_of_one_key() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let job = key("job");
    store.next(Call::Obtain, Fault::ApplyLate(SECOND));
    store.next(Call::Obtain, Fault::Fail);
    let start = BootClock::new().now();

    let (one, other) = join(locker.obtain(&job), locker.obtain(&job)).await;
    assert!(one.is_err() && other.is_err());
    locker.close().await;

    assert_eq!(store.holder(&job).await.unwrap(), None, "the key should be free");
    let took = BootClock::new().now().since(start);
    assert!(took < TTL / 2, "the lease expired after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_leave_one_task() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.every(Call::Obtain, Fault::Fail);

    for _ in 0..500 {
        assert!(locker.obtain(&key("job")).await.is_err());
        sleep(MILLISECOND).await;
    }

    // The heartbeater, the task that settles the last attempt, and tasks that have just ended.
    let tasks = Handle::current().metrics().num_alive_tasks();
    assert!(tasks <= 5, "{tasks} tasks");
}

#[tokio::test(start_paused = true)]
async fn failed_request_delays_grant_of_free_key_by_5_s_at_most() {
    for ttl in [SECOND * 600, LeaseOptions::MAX_TTL] {
        let store = Faulty::new(MemoryStore::new());
        let locker = Locker::new(store.clone()).with_options(LeaseOptions::new(ttl).unwrap());
        store.next(Call::Obtain, Fault::Fail);
        let start = BootClock::new().now();

        let _lease = locker.wait_until_obtained(&key("job")).await.unwrap();

        let took = BootClock::new().now().since(start);
        assert!(took <= SECOND * 5, "{took:?} with a ttl of {ttl:?}");
    }
}
