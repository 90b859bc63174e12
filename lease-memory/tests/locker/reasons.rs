//! The log message about a lost lease names the cause.

use std::time::Duration;

use futures_util::FutureExt;
use lease_core::Locker;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_memory::MemoryStore;
use lease_test_servers::warnings::Warnings;
use tokio::time::{advance, sleep};

use crate::obtained;

const TTL: Duration = Duration::from_secs(30);

fn loss(log: &Warnings) -> String {
    let lines = log.lines();
    lines.into_iter().find(|line| line.contains("lease lost")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn log_of_loss_names_blocked_runtime() {
    let (log, _guard) = Warnings::listen();
    let locker = Locker::new(MemoryStore::new());
    let lease = obtained(&locker, "job").await;
    sleep(TTL / 30).await;

    // One poll advances the paused clock. No other task runs during this poll.
    let _ = advance(TTL * 2).now_or_never();
    sleep(TTL / 30).await;

    assert!(!lease.is_held());
    let loss = loss(&log);
    assert!(loss.contains("the runtime did not poll the heartbeater for 5"), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn log_of_loss_during_outage_has_last_error() {
    let (log, _guard) = Warnings::listen();
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    store.every(Call::Heartbeat, Fault::Fail);

    sleep(TTL * 2).await;

    assert!(!lease.is_held());
    let loss = loss(&log);
    assert!(loss.contains("the store is out of reach: it confirmed no heartbeat for 2"), "{loss}");
    assert!(loss.contains("lock store did not answer"), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn log_of_loss_names_outage_if_store_does_not_answer() {
    let (log, _guard) = Warnings::listen();
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    store.every(Call::Heartbeat, Fault::Hang);

    sleep(TTL * 2).await;

    assert!(!lease.is_held());
    let loss = loss(&log);
    assert!(loss.contains("the store is out of reach: it confirmed no heartbeat for 2"), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn log_of_loss_names_silent_application() {
    let (log, _guard) = Warnings::listen();
    let locker = Locker::new(MemoryStore::new()).with_watchdog(TTL);
    let lease = obtained(&locker, "job").await;

    sleep(TTL * 4).await;

    assert!(!lease.is_held());
    let loss = loss(&log);
    assert!(loss.contains("the application did not call Locker::alive for"), "{loss}");
}
