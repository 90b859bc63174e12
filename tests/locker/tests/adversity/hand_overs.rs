//! Hand-overs with late or lost replies.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_core::{Handed, LeaseOptions, LeaseState, Locker, LossCause, Ttl};
use lease_memory::MemoryStore;
use tokio::time::sleep;

use crate::{TTL, key, obtained, soon};

#[tokio::test(start_paused = true)]
async fn work_is_cancelled_before_a_hand_over_expires() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    let work = lease.cancelled_on_loss();
    let state = lease.state();
    store.next(Call::Heartbeat, Fault::HangReply);

    let handing = tokio::spawn(lease.hand_over(Ttl::clamped(Duration::from_millis(500))));
    let _next = soon(Locker::new(store.inner()).wait_until_obtained(&key("job"))).await.unwrap();

    assert!(work.is_cancelled());
    assert_eq!(*state.borrow(), LeaseState::Released);
    let handed = soon(handing).await.unwrap().unwrap();
    assert!(matches!(handed, Handed::AlreadyLost(_)), "{handed:?}");
}

#[tokio::test(start_paused = true)]
async fn hand_over_with_a_late_reply_is_already_lost() {
    let store = Faulty::new(MemoryStore::new());
    let lease = obtained(&Locker::new(store.clone()), "job").await;
    store.next(Call::Heartbeat, Fault::DelayReply(Duration::from_secs(2)));

    let handed = lease.hand_over(Ttl::clamped(Duration::from_millis(500))).await.unwrap();

    assert_eq!(handed, Handed::AlreadyLost(LossCause::Expired));
}

/// Runs in real time, since the test blocks its thread while a heartbeat becomes due.
#[tokio::test]
async fn no_heartbeat_follows_a_hand_over() {
    let store = MemoryStore::new();
    let options = LeaseOptions::new(Duration::from_secs(10)).unwrap();
    let locker = Locker::new(store.clone()).with_options(options);
    let lease = obtained(&locker, "job").await;
    tokio::task::yield_now().await;
    // The first heartbeat is due after 3.2 s at the latest. The ttl is 10 s.
    std::thread::sleep(Duration::from_millis(3_500));

    let handed = lease.hand_over(Ttl::clamped(Duration::from_hours(1))).await.unwrap();
    sleep(Duration::from_millis(20)).await;

    assert!(matches!(handed, Handed::Over(_)), "{handed:?}");
    let left = store.holder(&key("job")).await.unwrap().unwrap().expires_in.unwrap();
    assert!(left > Duration::from_mins(50), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn hand_over_survives_a_failed_resume() {
    for fault in [Fault::Fail, Fault::LoseReply] {
        let store = Faulty::new(MemoryStore::new());
        let (from, to) = (Locker::new(store.clone()), Locker::new(store.clone()));
        let lease = obtained(&from, "job").await;
        let Handed::Over(handed) =
            lease.hand_over(Ttl::clamped(Duration::from_mins(10))).await.unwrap()
        else {
            panic!("the lease was lost")
        };

        store.next(Call::Adopt, fault);
        assert!(to.resume(handed.clone()).await.is_err());
        sleep(Duration::from_secs(2)).await;
        let resumed = to.resume(handed).await.unwrap();

        assert!(resumed.is_some_and(|lease| lease.is_held()), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_hand_over_is_released_despite_its_long_ttl() {
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
