//! A loss is reported in time although the machine sleeps or a runtime is blocked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lease_core::conformance::SkewedClock;
use lease_core::store::Clock;
use lease_core::{LeaseOptions, LeaseState, Locker, LossCause};
use lease_memory::MemoryStore;
use tokio::time::timeout;

use crate::{TTL, obtained};

#[tokio::test(start_paused = true)]
async fn work_is_not_polled_after_the_clock_leaps_past_the_ttl() {
    let (clock, locker) = locker_with_leaping_clock();
    let lease = obtained(&locker, "job").await;
    let polls = AtomicUsize::new(0);

    let work = async {
        polls.fetch_add(1, Ordering::SeqCst);
        clock.leap(TTL);
        // The work becomes ready at once, so only the lease's check of the clock can stop it.
        tokio::task::yield_now().await;
        polls.fetch_add(1, Ordering::SeqCst);
    };
    let lost = lease.run_until_lost(work).await.unwrap_err();

    assert_eq!((lost.cause, polls.into_inner()), (LossCause::Expired, 1));
}

#[tokio::test(start_paused = true)]
async fn heartbeater_notices_expiry_after_a_clock_leap() {
    let (clock, locker) = locker_with_leaping_clock();
    let lease = obtained(&locker, "job").await;
    let mut state = lease.state();
    tokio::task::yield_now().await;

    clock.leap(TTL);
    let changed = timeout(Duration::from_secs(2), state.changed()).await;

    assert!(changed.is_ok(), "the loss was not reported within 2 s of waking");
    assert_eq!(*state.borrow(), LeaseState::Lost(LossCause::Expired));
}

/// Runs in real time. Only the heartbeater's runtime is blocked.
#[test]
fn loss_is_reported_while_the_heartbeater_is_blocked() {
    let heartbeater = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let holder = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    holder.block_on(async {
        let options = LeaseOptions::new(Duration::from_millis(300)).unwrap();
        let locker = Locker::new(MemoryStore::new())
            .with_options(options)
            .with_runtime(heartbeater.handle().clone());
        let lease = obtained(&locker, "job").await;
        heartbeater.spawn(async move {
            let _unblocked = blocked.recv();
        });

        let lost = timeout(Duration::from_mins(5), lease.lost()).await;

        assert_eq!(lost.unwrap().cause, LossCause::Expired);
    });
    unblock.send(()).unwrap();
}

fn locker_with_leaping_clock() -> (Arc<SkewedClock>, Locker) {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let shared = Arc::clone(&clock) as Arc<dyn Clock>;
    (clock, Locker::new(MemoryStore::new()).with_clock(shared))
}
