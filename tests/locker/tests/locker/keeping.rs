//! Heartbeats that extend a lease.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::{Lease, LeaseState, Locker};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, obtained};

#[tokio::test(start_paused = true)]
async fn failed_heartbeat_sets_at_risk_until_the_next_success() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    let mut state = lease.state();
    assert_eq!(*state.borrow_and_update(), LeaseState::Held);

    store.next(Call::Heartbeat, Fault::Fail);
    state.changed().await.unwrap();
    assert_eq!(*state.borrow_and_update(), LeaseState::AtRisk);
    state.changed().await.unwrap();
    assert_eq!(*state.borrow_and_update(), LeaseState::Held);

    lease.release().await.unwrap();
    assert_eq!(*state.borrow_and_update(), LeaseState::Released);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_of_leases_obtained_together_are_spread_out() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let mut leases = Vec::new();
    for number in 0..1000 {
        leases.push(obtained(&locker, &format!("lease-{number}")).await);
    }

    let mut most = 0;
    for _ in 0..200 {
        let before = store.calls(Call::Heartbeat);
        sleep(Duration::from_millis(100)).await;
        most = most.max(store.calls(Call::Heartbeat) - before);
    }

    // 1,000 leases with a period of 10 s send 10 heartbeats per 100 ms on average. A batch has all
    // heartbeats that are due within 156 ms.
    assert!(most < 200, "{most} heartbeats within 100 ms");
    assert!(leases.iter().all(Lease::is_held));
}

#[tokio::test(start_paused = true)]
async fn lease_obtained_after_a_release_is_kept_alive() {
    let locker = Locker::new(MemoryStore::new());
    for _ in 0..3 {
        obtained(&locker, "job").await.release().await.unwrap();
        sleep(Duration::from_millis(1)).await;
    }

    let lease = obtained(&locker, "job").await;
    sleep(TTL * 3).await;

    assert!(lease.is_held());
}
