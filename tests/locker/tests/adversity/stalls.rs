//! Machines that sleep, and runtimes that are held up: a loss is told all the same.

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
async fn work_that_wakes_by_itself_is_not_polled_after_the_clock_has_leapt() {
    let (clock, locker) = leaping();
    let lease = obtained(&locker, "job").await;
    let polls = AtomicUsize::new(0);

    let work = async {
        polls.fetch_add(1, Ordering::SeqCst);
        clock.leap(TTL);
        // Ready at once: only the lease's own look at the clock comes between.
        tokio::task::yield_now().await;
        polls.fetch_add(1, Ordering::SeqCst);
    };
    let lost = lease.run_until_lost(work).await.unwrap_err();

    assert_eq!((lost.cause, polls.into_inner()), (LossCause::Expired, 1));
}

#[tokio::test(start_paused = true)]
async fn the_heartbeater_looks_up_although_its_timers_were_asleep() {
    let (clock, locker) = leaping();
    let lease = obtained(&locker, "job").await;
    let mut state = lease.state();
    tokio::task::yield_now().await;

    clock.leap(TTL);
    let told = timeout(Duration::from_secs(2), state.changed()).await;

    assert!(told.is_ok(), "not looked up within 2 s of waking");
    assert_eq!(*state.borrow(), LeaseState::Lost(LossCause::Expired));
}

/// In real time: the heartbeater's runtime is held up, the holder's is not.
#[test]
fn a_loss_is_told_although_the_heartbeater_is_held_up() {
    let elsewhere = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let here = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    here.block_on(async {
        let options = LeaseOptions::new(Duration::from_millis(300)).unwrap();
        let locker = Locker::new(MemoryStore::new())
            .with_options(options)
            .with_runtime(elsewhere.handle().clone());
        let lease = obtained(&locker, "job").await;
        elsewhere.spawn(async move {
            let _unblocked = blocked.recv();
        });

        let lost = timeout(Duration::from_mins(5), lease.lost()).await;

        assert_eq!(lost.unwrap().cause, LossCause::Expired);
    });
    unblock.send(()).unwrap();
}

fn leaping() -> (Arc<SkewedClock>, Locker) {
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let shared = Arc::clone(&clock) as Arc<dyn Clock>;
    (clock, Locker::new(MemoryStore::new()).with_clock(shared))
}
