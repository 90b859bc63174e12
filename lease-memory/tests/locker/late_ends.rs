//! Leases that the holder releases, drops or hands over after the deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join;
use lease_core::conformance::SkewedClock;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{Clock, LockStore};
use lease_core::{Handed, Lease, LeaseKey, LeaseState, Locker, LossCause, Metrics, Released, Ttl};
use lease_memory::MemoryStore;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::{key, obtained};

#[derive(Debug, Default)]
struct Counts {
    lost: AtomicUsize,
    released: AtomicUsize,
}

impl Metrics for Counts {
    fn lost(&self, _key: &LeaseKey, _held: Duration, cause: LossCause) {
        assert_eq!(cause, LossCause::Expired);
        self.lost.fetch_add(1, Ordering::SeqCst);
    }

    fn released(&self, _key: &LeaseKey, _held: Duration) {
        self.released.fetch_add(1, Ordering::SeqCst);
    }
}

struct Overtaken {
    lease: Lease,
    /// Subscribed before the deadline. Reading the state through this receiver does not end the lease.
    state: watch::Receiver<LeaseState>,
    locker: Locker,
    counts: Arc<Counts>,
    successor: Lease,
}

impl Overtaken {
    async fn new() -> Self {
        let times = [(); 2].map(|()| Arc::new(SkewedClock::new(Duration::ZERO, 1.0)));
        let [clock, store_clock] = &times;
        let store = MemoryStore::with_clock(Arc::clone(store_clock) as Arc<dyn Clock>);
        let counts = Arc::new(Counts::default());
        let locker = Locker::new(store.clone())
            .with_clock(Arc::clone(clock) as Arc<dyn Clock>)
            .with_metrics(Arc::clone(&counts) as Arc<dyn Metrics>);
        let lease = obtained(&locker, "job").await;
        let state = lease.state();
        // The clocks leap by a ttl at once, as if the process were paused.
        for clock in &times {
            clock.leap(locker.options().ttl());
        }
        let successor = obtained(&Locker::new(store), "job").await;
        Self { lease, state, locker, counts, successor }
    }
}

async fn assert_counted_as_lost(locker: &Locker, counts: &Counts, successor: &Lease) {
    locker.close().await;
    assert_eq!(counts.lost.load(Ordering::SeqCst), 1);
    assert_eq!(counts.released.load(Ordering::SeqCst), 0);
    assert!(successor.is_held());
}

#[tokio::test(start_paused = true)]
async fn release_after_deadline_returns_lost() {
    let Overtaken { lease, state, locker, counts, successor } = Overtaken::new().await;
    let released = lease.release().await.unwrap();

    assert_eq!(released, Released::AlreadyLost(LossCause::Expired));
    assert_eq!(*state.borrow(), LeaseState::Lost(LossCause::Expired));
    assert_counted_as_lost(&locker, &counts, &successor).await;
}

#[tokio::test(start_paused = true)]
async fn drop_after_deadline_counts_as_lost() {
    let Overtaken { lease, locker, counts, successor, .. } = Overtaken::new().await;

    drop(lease);

    assert_counted_as_lost(&locker, &counts, &successor).await;
}

#[tokio::test(start_paused = true)]
async fn hand_over_after_deadline_returns_lost() {
    let Overtaken { lease, locker, counts, successor, .. } = Overtaken::new().await;

    let handed = lease.hand_over(Ttl::clamped(Duration::from_secs(10))).await.unwrap();

    assert_eq!(handed, Handed::AlreadyLost(LossCause::Expired));
    assert_counted_as_lost(&locker, &counts, &successor).await;
}

#[tokio::test(start_paused = true)]
async fn late_grant_is_released_and_counts_no_loss() {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let store = Faulty::new(MemoryStore::new());
    let counts = Arc::new(Counts::default());
    let locker = Locker::new(store.clone())
        .with_clock(Arc::clone(&clock) as Arc<dyn Clock>)
        .with_metrics(Arc::clone(&counts) as Arc<dyn Metrics>);
    store.next(Call::Obtain, Fault::DelayReply(Duration::from_millis(10)));
    let job = key("job");

    let (attempt, ()) = join(locker.obtain(&job), async {
        sleep(Duration::from_millis(5)).await;
        clock.leap(locker.options().ttl());
    })
    .await;
    locker.close().await;

    assert!(attempt.unwrap_err().is_retryable());
    assert_eq!(counts.lost.load(Ordering::SeqCst), 0, "a late grant should not count as lost");
    assert_eq!(store.holder(&job).await.unwrap(), None);
}
