//! Heartbeats, while they keep a lease.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::{Lease, LeaseState, Locker};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, obtained};

#[tokio::test(start_paused = true)]
async fn a_failing_heartbeat_is_a_risk_and_then_none() {
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
async fn leases_obtained_together_do_not_beat_together() {
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

    // 1,000 leases with a period of 10 s: 10 in each 100 ms on average, batches of 156 ms.
    assert!(most < 200, "{most} heartbeats within 100 ms");
    assert!(leases.iter().all(Lease::is_held));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_follows_one_that_was_given_back_is_kept_alive() {
    let locker = Locker::new(MemoryStore::new());
    for _ in 0..3 {
        obtained(&locker, "job").await.release().await.unwrap();
        // By then the heartbeater has heard of it.
        sleep(Duration::from_millis(1)).await;
    }

    // For this one, nobody rings.
    let lease = obtained(&locker, "job").await;
    sleep(TTL * 3).await;

    assert!(lease.is_held());
}
