//! Releases of lost leases, releases during a heartbeat, and reservations out of range.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{BootClock, Clock};
use lease_core::{LeaseOptions, Locker, Reservation, Ttl};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, key, obtained, soon};

#[tokio::test(start_paused = true)]
async fn close_waits_for_dropped_lease_and_ignores_other_callers() {
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
async fn release_of_a_lost_lease_returns_at_once() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.choose(|_| Some(Fault::Hang));
    lease.lost().await;
    let start = BootClock::new().now();

    lease.release().await.unwrap();

    assert_eq!(BootClock::new().now().since(start), Duration::ZERO);
}

/// The later lease has the former lease's index in the heartbeater.
#[tokio::test(start_paused = true)]
async fn late_heartbeat_reply_does_not_end_a_later_lease() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let former = obtained(&locker, "former").await;
    store.next(Call::Heartbeat, Fault::DelayRequest(Duration::from_secs(2)));
    soon(async {
        while store.calls(Call::Heartbeat) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;

    former.release().await.unwrap();
    let present = obtained(&locker, "present").await;
    sleep(Duration::from_secs(3)).await;

    assert_eq!(store.calls(Call::Heartbeat), 1, "the later lease has sent a heartbeat");
    assert!(present.is_held());
}

#[tokio::test(start_paused = true)]
async fn reservation_out_of_range_leaves_lease_held() {
    let lease = obtained(&Locker::new(MemoryStore::new()), "job").await;
    assert!(Reservation::new(Duration::MAX).is_err() && Ttl::new(Duration::ZERO).is_err());
    assert!(lease.is_held(), "an argument out of range ended the lease");
    lease.release_reserved(Reservation::clamped(Duration::MAX)).await.unwrap();

    let options = LeaseOptions::default();
    assert_eq!(options.trusted(TTL, Duration::MAX), Duration::ZERO);
    assert!(options.trusted(Duration::MAX, Duration::ZERO) > TTL);
}
