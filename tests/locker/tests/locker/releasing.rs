//! Leases that are released, dropped, reserved or abandoned.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_core::{FencingToken, Locker, Reservation};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, key, now, obtained};

#[tokio::test(start_paused = true)]
async fn dropped_lease_is_free_at_once() {
    let locker = Locker::new(MemoryStore::new());
    let start = now();

    drop(obtained(&locker, "job").await);
    let second = locker.wait_until_obtained(&key("job")).await.unwrap();

    assert!(second.is_held());
    assert_eq!(now().since(start), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn abandoned_lease_expires_and_is_granted_again() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    let (token, cancelled, start) = (lease.token(), lease.cancelled_on_loss(), now());

    lease.abandon();
    assert!(cancelled.is_cancelled());
    let next = Locker::new(store.clone()).wait_until_obtained(&key("job")).await.unwrap();

    let took = now().since(start);
    assert!(next.token() > token);
    assert!(took >= TTL && took <= TTL + Duration::from_secs(1), "{took:?}");
    assert_eq!((store.calls(Call::Heartbeat), store.calls(Call::Release)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn heartbeat_in_flight_does_not_undo_a_release() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    store.next(Call::Heartbeat, Fault::DelayRequest(Duration::from_secs(2)));
    while store.calls(Call::Heartbeat) == 0 {
        sleep(Duration::from_millis(100)).await;
    }

    lease.release().await.unwrap();
    sleep(Duration::from_secs(5)).await;

    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn duplicate_claim_after_the_release_is_not_granted() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    store.next(Call::Obtain, Fault::Double(Duration::from_secs(1)));
    obtained(&locker, "job").await.release().await.unwrap();

    sleep(Duration::from_secs(2)).await;

    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn reserved_key_is_granted_after_its_reservation() {
    let locker = Locker::new(MemoryStore::new());
    let start = now();
    let lease = obtained(&locker, "job").await;
    lease.release_reserved(Reservation::clamped(Duration::from_secs(100))).await.unwrap();

    let next = locker.wait_until_obtained(&key("job")).await.unwrap();

    assert!(next.is_held());
    assert!(now().since(start) >= Duration::from_secs(100));
}

#[tokio::test(start_paused = true)]
async fn unused_records_are_removed_and_tokens_grow() {
    let store = MemoryStore::counting_from_one();
    let locker = Locker::new(store.clone());
    let mut last: Option<FencingToken> = None;
    for number in 0..1000 {
        let lease = obtained(&locker, &format!("once-{number}")).await;
        lease.release().await.unwrap();
    }
    for _ in 0..5 {
        let lease = obtained(&locker, "again").await;
        assert!(Some(lease.token()) > last);
        last = Some(lease.token());
        lease.release().await.unwrap();
        sleep(TTL * 3).await;
        assert!(store.records() <= 1, "{} records are left", store.records());
    }
}
