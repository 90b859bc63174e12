//! Hand-overs whose answers are late or lost.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_core::{Handed, LeaseOptions, LeaseState, Locker, LossCause, Ttl};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, key, obtained, soon};

#[tokio::test(start_paused = true)]
async fn work_has_stopped_before_a_hand_over_can_be_taken_up_or_run_out() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    let work = lease.cancelled_on_loss();
    let state = lease.state();
    store.next(Call::Heartbeat, Fault::HangReply);

    let handing = tokio::spawn(lease.hand_over(Ttl::clamped(Duration::from_millis(500))));
    let _next = soon(Locker::new(store.inner()).wait_until_obtained(&key("job"))).await.unwrap();

    assert!(work.is_cancelled());
    assert_eq!(*state.borrow(), LeaseState::Released);
    // The store says at the next try that it is too late.
    let handed = soon(handing).await.unwrap().unwrap();
    assert!(matches!(handed, Handed::AlreadyLost(_)), "{handed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_whose_answer_comes_too_late_is_none() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.next(Call::Heartbeat, Fault::DelayReply(Duration::from_secs(2)));

    let handed = lease.hand_over(Ttl::clamped(Duration::from_millis(500))).await.unwrap();

    assert_eq!(handed, Handed::AlreadyLost(LossCause::Expired));
}

/// In real time, with a thread that was busy while a heartbeat fell due.
#[tokio::test]
async fn no_heartbeat_comes_after_the_one_that_hands_over() {
    let store = MemoryStore::new();
    let options = LeaseOptions::new(Duration::from_secs(10)).unwrap();
    let locker = Locker::new(store.clone()).with_options(options);
    let lease = obtained(&locker, "job").await;
    tokio::task::yield_now().await;
    // The first heartbeat falls due after 3.2 s at the latest; the lease lasts for 10 s.
    std::thread::sleep(Duration::from_millis(3_500));

    let handed = lease.hand_over(Ttl::clamped(Duration::from_hours(1))).await.unwrap();
    sleep(Duration::from_millis(20)).await;

    assert!(matches!(handed, Handed::Over(_)), "{handed:?}");
    let left = store.holder(&key("job")).await.unwrap().unwrap().expires_in.unwrap();
    assert!(left > Duration::from_mins(50), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_survives_a_resume_that_failed() {
    for fault in [Fault::Fail, Fault::LoseReply] {
        let store = Faulty::new(MemoryStore::new());
        let (from, to) = (Locker::new(store.clone()), Locker::new(store.clone()));
        let lease = obtained(&from, "job").await;
        let Handed::Over(handed) =
            lease.hand_over(Ttl::clamped(Duration::from_mins(10))).await.unwrap()
        else {
            panic!("nobody else took it")
        };

        store.next(Call::Adopt, fault);
        assert!(to.resume(handed.clone()).await.is_err());
        sleep(Duration::from_secs(2)).await;
        let resumed = to.resume(handed).await.unwrap();

        assert!(resumed.is_some_and(|lease| lease.is_held()), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_hand_over_is_given_back_however_long_it_was_to_be() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    store.every(Call::Heartbeat, Fault::LoseReply);
    store.every(Call::Release, Fault::Fail);

    assert!(lease.hand_over(Ttl::clamped(Duration::from_hours(1))).await.is_err());
    sleep(TTL * 2).await;
    store.heal();
    soon(locker.close()).await;

    assert_eq!(store.holder(&key("job")).await.unwrap(), None);
}
