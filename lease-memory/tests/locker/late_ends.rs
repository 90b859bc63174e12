//! Leases that their holder ends after the deadline has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lease_core::{
    Clock, Handed, Lease, LeaseKey, LeaseState, Locker, LossCause, Metrics, Released, SkewedClock,
};
use lease_memory::MemoryStore;
use tokio::sync::watch;

use crate::obtained;

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

/// A lease whose deadline has passed while its process stood still, and the lease of its successor.
struct Overtaken {
    lease: Lease,
    /// Followed from the grant on: to look at it does not end the lease.
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
        // No task of the process runs meanwhile.
        for clock in &times {
            clock.leap(locker.options().ttl());
        }
        let successor = obtained(&Locker::new(store), "job").await;
        Self { lease, state, locker, counts, successor }
    }
}

/// The loss is counted, no release is, and the successor keeps its lease.
async fn is_counted_as_lost(locker: &Locker, counts: &Counts, successor: &Lease) {
    locker.close().await;
    assert_eq!(counts.lost.load(Ordering::SeqCst), 1);
    assert_eq!(counts.released.load(Ordering::SeqCst), 0);
    assert!(successor.is_held());
}

#[tokio::test(start_paused = true)]
async fn release_after_the_deadline_says_lost() {
    let Overtaken { lease, state, locker, counts, successor } = Overtaken::new().await;
    let released = lease.release().await.unwrap();

    assert_eq!(released, Released::AlreadyLost(LossCause::Expired));
    assert_eq!(*state.borrow(), LeaseState::Lost(LossCause::Expired));
    is_counted_as_lost(&locker, &counts, &successor).await;
}

#[tokio::test(start_paused = true)]
async fn drop_after_the_deadline_counts_as_lost() {
    let Overtaken { lease, locker, counts, successor, .. } = Overtaken::new().await;

    drop(lease);

    is_counted_as_lost(&locker, &counts, &successor).await;
}

#[tokio::test(start_paused = true)]
async fn hand_over_after_the_deadline_says_lost() {
    let Overtaken { lease, locker, counts, successor, .. } = Overtaken::new().await;

    let handed = lease.hand_over(Duration::from_secs(10)).await.unwrap();

    assert_eq!(handed, Handed::AlreadyLost(LossCause::Expired));
    is_counted_as_lost(&locker, &counts, &successor).await;
}
