//! Many leases that the application drops at once.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{BootClock, Clock, LockStore};
use lease_core::{Lease, Locker};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{key, obtained};

const AT_ONCE: usize = 1024;
const LEASES: usize = 10_000;
const TTL: Duration = Duration::from_secs(30);

async fn leases(locker: &Locker) -> Vec<Lease> {
    let mut leases = Vec::new();
    for number in 0..LEASES {
        leases.push(obtained(locker, &format!("{number}")).await);
    }
    leases
}

async fn held(store: &Faulty<MemoryStore>) -> usize {
    let mut held = 0;
    for number in 0..LEASES {
        let holder = store.holder(&key(&format!("{number}"))).await.unwrap();
        held += usize::from(holder.is_some());
    }
    held
}

#[tokio::test(start_paused = true)]
async fn number_of_concurrent_releases_is_limited() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let leases = leases(&locker).await;
    store.every(Call::Release, Fault::DelayReply(Duration::from_millis(500)));

    drop(leases);
    sleep(Duration::from_millis(100)).await;

    let sent = store.calls(Call::Release);
    assert!((1..=AT_ONCE).contains(&sent), "{sent} concurrent releases");
    locker.close().await;
    assert_eq!(store.calls(Call::Release), LEASES);
    assert_eq!(held(&store).await, 0);
}

#[tokio::test(start_paused = true)]
async fn releases_without_an_answer_delay_no_heartbeat() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let (kept, dropped) = (obtained(&locker, "kept").await, leases(&locker).await);
    store.every(Call::Release, Fault::Hang);

    drop(dropped);
    sleep(TTL * 3).await;

    assert!(kept.is_held());
}

#[tokio::test(start_paused = true)]
async fn heartbeats_without_an_answer_delay_no_release() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let (dropped, _kept) = (obtained(&locker, "dropped").await, leases(&locker).await);
    store.every(Call::Heartbeat, Fault::Hang);
    // All heartbeats are due at once, hang, and use all slots for heartbeats.
    tokio::time::advance(TTL / 3).await;
    sleep(Duration::from_millis(10)).await;
    let start = BootClock::new().now();

    drop(dropped);
    while store.holder(&key("dropped")).await.unwrap().is_some() {
        sleep(Duration::from_millis(1)).await;
    }

    let took = BootClock::new().now().since(start);
    assert!(took <= Duration::from_millis(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn dropped_lease_is_released_at_once_on_an_idle_locker() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    sleep(Duration::from_millis(10)).await;
    let start = BootClock::new().now();

    drop(lease);
    locker.close().await;

    // Paused time advances only while all tasks wait, so the release needed no wait.
    assert_eq!(BootClock::new().now(), start);
    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn releases_are_sent_after_the_last_locker_is_gone() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let leases = leases(&locker).await;

    drop((leases, locker));
    sleep(TTL / 2).await;

    assert_eq!(held(&store).await, 0);
}
