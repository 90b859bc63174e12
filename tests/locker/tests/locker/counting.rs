//! The events that reach `Metrics`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::{LeaseKey, Locker, LossCause, Metrics, StoreOperation, Ttl};
use lease_memory::MemoryStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};

use crate::{TTL, obtained};

#[tokio::test(start_paused = true)]
async fn metrics_receive_each_event() {
    let counted = Arc::new(Counted::default());
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone()).with_metrics(Arc::clone(&counted) as Arc<dyn Metrics>);

    let lease = obtained(&locker, "job").await;
    sleep(TTL).await;
    lease.release().await.unwrap();
    let lease = obtained(&locker, "job").await;
    store.every(Call::Heartbeat, Fault::Fail);
    lease.lost().await;
    sleep(Duration::from_secs(1)).await;

    let counts = counted.0.lock().unwrap().clone();
    assert_eq!(counts.iter().filter(|what| **what == "obtained").count(), 2);
    assert_eq!(counts.iter().filter(|what| **what == "released").count(), 1);
    assert_eq!(counts.iter().filter(|what| **what == "lost").count(), 1);
    assert!(counts.iter().filter(|what| **what == "heartbeat").count() >= 3);
    assert!(counts.contains(&"heartbeat failed"));
}

#[derive(Debug, Default)]
struct Counted(Mutex<Vec<&'static str>>);

impl Metrics for Counted {
    fn obtained(&self, _key: &LeaseKey, _waited: Duration) {
        self.0.lock().unwrap().push("obtained");
    }

    fn heartbeat(&self, _: &LeaseKey, _: Duration, margin: Duration, trusted: Duration) {
        assert!(margin > TTL / 2 && margin < trusted && trusted < TTL, "{margin:?}");
        self.0.lock().unwrap().push("heartbeat");
    }

    fn heartbeat_failed(&self, _key: &LeaseKey, _margin: Duration) {
        self.0.lock().unwrap().push("heartbeat failed");
    }

    fn released(&self, _key: &LeaseKey, held: Duration) {
        assert_eq!(held, TTL);
        self.0.lock().unwrap().push("released");
    }

    fn lost(&self, _key: &LeaseKey, _held: Duration, cause: LossCause) {
        assert_eq!(cause, LossCause::Expired);
        self.0.lock().unwrap().push("lost");
    }
}

/// Counts what begins, and what ends.
#[derive(Debug, Default)]
struct Balance(Mutex<Open>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Open {
    leases: i64,
    waiters: i64,
    at_risk: i64,
    began: u64,
    lost: u64,
    requests: u64,
}

impl Balance {
    fn change(&self, change: impl FnOnce(&mut Open)) {
        let mut open = self.0.lock().unwrap();
        change(&mut open);
        assert!(open.leases >= 0 && open.waiters >= 0 && open.at_risk >= 0, "{open:?}");
    }
}

impl Metrics for Balance {
    fn began(&self, _key: &LeaseKey) {
        self.change(|open| (open.leases, open.began) = (open.leases + 1, open.began + 1));
    }

    fn released(&self, _key: &LeaseKey, _held: Duration) {
        self.change(|open| open.leases -= 1);
    }

    fn lost(&self, _key: &LeaseKey, _held: Duration, _cause: LossCause) {
        self.change(|open| (open.leases, open.lost) = (open.leases - 1, open.lost + 1));
    }

    fn waits(&self, _key: &LeaseKey) {
        self.change(|open| open.waiters += 1);
    }

    fn stopped_waiting(&self, _key: &LeaseKey, _waited: Duration) {
        self.change(|open| open.waiters -= 1);
    }

    fn at_risk(&self, _key: &LeaseKey) {
        self.change(|open| open.at_risk += 1);
    }

    fn recovered(&self, _key: &LeaseKey) {
        self.change(|open| open.at_risk -= 1);
    }

    fn store_request(&self, _operation: StoreOperation, _latency: Duration, _is_ok: bool) {
        self.change(|open| open.requests += 1);
    }
}

/// Obtains a lease, waits with a limit, hands over, drops attempts, and loses leases, at random.
async fn use_at_random(locker: &Locker, random: &mut StdRng) {
    let key = format!("job-{}", random.random_range(0..3)).parse().unwrap();
    let limit = Duration::from_millis(random.random_range(0..40_000));
    let wait = timeout(limit, locker.wait_until_obtained(&key));
    let attempt = async {
        if random.random_bool(0.5) {
            wait.await.ok().and_then(Result::ok)
        } else {
            locker.obtain(&key).await.ok()?.into_lease()
        }
    };
    let Some(lease) = attempt.await else { return };
    sleep(Duration::from_millis(random.random_range(0..60_000))).await;
    match random.random_range(0..4) {
        0 => drop(lease),
        1 => drop(lease.hand_over(Ttl::clamped(TTL)).await),
        2 => drop(lease.lost().await),
        _ => drop(lease.release().await),
    }
}

#[tokio::test(start_paused = true)]
async fn each_begin_has_one_end_under_faults() {
    let counted = Arc::new(Balance::default());
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone()).with_metrics(Arc::clone(&counted) as Arc<dyn Metrics>);
    let faults = [Fault::Fail, Fault::Hang, Fault::LoseReply, Fault::HangReply];
    let mut random = StdRng::seed_from_u64(1);
    store.choose(move |_call| faults.get(random.random_range(0..6_usize)).copied());
    let mut users = tokio::task::JoinSet::new();
    for seed in 0..8 {
        let (locker, mut random) = (locker.clone(), StdRng::seed_from_u64(seed));
        users.spawn(async move {
            for _ in 0..400 {
                // `lost` waits for ever, unless the lease is lost.
                drop(timeout(TTL * 5, use_at_random(&locker, &mut random)).await);
            }
        });
    }
    users.join_all().await;
    store.heal();
    locker.close().await;
    sleep(TTL * 2).await;

    let open = *counted.0.lock().unwrap();
    assert_eq!((open.leases, open.waiters, open.at_risk), (0, 0, 0), "{open:?}");
    assert!(open.began > 100 && open.lost > 5 && open.requests > open.began, "{open:?}");
}

#[tokio::test(start_paused = true)]
async fn refused_and_failed_calls_are_counted() {
    #[derive(Debug, Default)]
    struct Calls(Mutex<Vec<&'static str>>);

    impl Metrics for Calls {
        fn refused(&self, _key: &LeaseKey) {
            self.0.lock().unwrap().push("refused");
        }

        fn failed(&self, _key: &LeaseKey) {
            self.0.lock().unwrap().push("failed");
        }
    }

    let counted = Arc::new(Calls::default());
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone()).with_metrics(Arc::clone(&counted) as Arc<dyn Metrics>);
    let _lease = obtained(&locker, "job").await;

    assert!(locker.obtain(&"job".parse().unwrap()).await.unwrap().into_lease().is_none());
    store.next(Call::Obtain, Fault::Fail);
    assert!(locker.obtain(&"other".parse().unwrap()).await.is_err());

    assert_eq!(*counted.0.lock().unwrap(), ["refused", "failed"]);
}
