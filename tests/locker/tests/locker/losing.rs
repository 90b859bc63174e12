//! Lost leases: the report of the loss, its time, and the end of the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lease_core::conformance::SkewedClock;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::Clock;
use lease_core::{LeaseState, Locker, LossCause, Released};
use lease_memory::MemoryStore;
use tokio::time::{sleep, timeout};

use crate::{TTL, now, obtained};

#[tokio::test(start_paused = true)]
async fn loss_is_reported_by_each_method() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    let (state, cancelled) = (lease.state(), lease.cancelled_on_loss());
    store.every(Call::Heartbeat, Fault::Fail);
    let start = now();

    cancelled.cancelled().await;
    let cancelled_after = now().since(start);
    assert!(lease.is_held(), "the lease is held during the grace time");
    let lost = lease.lost().await;

    // The lease is lost after its ttl less 1 % and 2 ms. The grace time before the loss is a tenth
    // of the ttl.
    let deadline = Duration::from_millis(30_000 - 300 - 2);
    let within = |moment: Duration, expected: Duration| {
        moment >= expected && moment <= expected + Duration::from_millis(2)
    };
    assert!(within(cancelled_after + TTL / 10, deadline), "{cancelled_after:?}");
    assert!(within(now().since(start), deadline), "{:?}", now().since(start));
    assert_eq!(lost.cause, LossCause::Expired);
    assert_eq!(*state.borrow(), LeaseState::Lost(LossCause::Expired));
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert!(lease.cancelled_on_loss().is_cancelled());
    assert_eq!(
        lost.to_string(),
        format!("lease on job with token {} was lost: no heartbeat succeeded in time", lost.token),
    );
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyLost(LossCause::Expired));
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_at_the_loss() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.every(Call::Heartbeat, Fault::Hang);
    let polls = AtomicUsize::new(0);

    let work = async {
        loop {
            polls.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_secs(1)).await;
        }
    };
    let lost = lease.run_until_lost(work).await.unwrap_err();

    assert_eq!(lost.cause, LossCause::Expired);
    assert_eq!(polls.into_inner(), 30);
}

#[tokio::test(start_paused = true)]
async fn evicted_lease_is_lost_at_its_next_heartbeat() {
    use lease_core::store::LockStore;
    let store = MemoryStore::new();
    let lease = obtained(&Locker::new(store.clone()), "job").await;

    assert!(store.evict(lease.key(), &lease.token().into()).await.unwrap());
    let lost = timeout(TTL / 3, lease.lost()).await.unwrap();

    assert_eq!(lost.cause, LossCause::Revoked);
}

#[tokio::test(start_paused = true)]
async fn lease_is_lost_after_a_suspend_longer_than_its_ttl() {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let locker = Locker::new(MemoryStore::new()).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let lease = obtained(&locker, "job").await;
    assert!(lease.is_held());

    clock.leap(TTL);

    assert!(!lease.is_held());
    let lost = tokio::select! { biased; lost = lease.lost() => Some(lost), () = async {} => None };
    assert!(lost.is_some(), "`lost` was not ready at its first poll");
}

#[tokio::test(start_paused = true)]
async fn late_heartbeat_reply_does_not_revive_a_lost_lease() {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone()).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let lease = obtained(&locker, "job").await;
    // The store extends the lease, but the reply arrives after the deadline.
    store.next(Call::Heartbeat, Fault::DelayReply(Duration::from_secs(5)));
    sleep(Duration::from_secs(11)).await;
    clock.leap(TTL);

    sleep(TTL).await;

    assert!(!lease.is_held());
    assert_eq!(*lease.state().borrow(), LeaseState::Lost(LossCause::Expired));
}
