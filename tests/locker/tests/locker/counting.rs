//! The events that reach `Metrics`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::{LeaseKey, Locker, LossCause, Metrics};
use lease_memory::MemoryStore;
use tokio::time::sleep;

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

    fn heartbeat(&self, _key: &LeaseKey, _latency: Duration, margin: Duration) {
        assert!(margin > TTL / 2, "{margin:?}");
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
