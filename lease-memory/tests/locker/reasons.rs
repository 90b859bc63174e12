//! The log message about a lost lease names the cause.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use lease_core::Locker;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_memory::MemoryStore;
use tokio::time::{advance, sleep};
use tracing::subscriber::{DefaultGuard, set_default};

use crate::obtained;

const TTL: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn record() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, set_default(subscriber))
    }

    fn loss(&self) -> String {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().find(|line| line.contains("lease lost")).unwrap().to_owned()
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn log_of_loss_names_blocked_runtime() {
    let (log, _guard) = Log::record();
    let locker = Locker::new(MemoryStore::new());
    let lease = obtained(&locker, "job").await;
    sleep(TTL / 30).await;

    // One poll advances the paused clock. No other task runs during this poll.
    let _ = advance(TTL * 2).now_or_never();
    sleep(TTL / 30).await;

    assert!(!lease.is_held());
    let loss = log.loss();
    assert!(loss.contains("the runtime did not poll the heartbeater for 5"), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn log_of_loss_during_outage_has_last_error() {
    let (log, _guard) = Log::record();
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    store.every(Call::Heartbeat, Fault::Fail);

    sleep(TTL * 2).await;

    assert!(!lease.is_held());
    let loss = log.loss();
    assert!(loss.contains("the store is out of reach: it confirmed no heartbeat for 2"), "{loss}");
    assert!(loss.contains("lock store did not answer"), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn log_of_loss_names_outage_if_store_does_not_answer() {
    let (log, _guard) = Log::record();
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let lease = obtained(&locker, "job").await;
    store.every(Call::Heartbeat, Fault::Hang);

    sleep(TTL * 2).await;

    assert!(!lease.is_held());
    let loss = log.loss();
    assert!(loss.contains("the store is out of reach: it confirmed no heartbeat for 2"), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn log_of_loss_names_silent_application() {
    let (log, _guard) = Log::record();
    let locker = Locker::new(MemoryStore::new()).with_watchdog(TTL);
    let lease = obtained(&locker, "job").await;

    sleep(TTL * 4).await;

    assert!(!lease.is_held());
    let loss = log.loss();
    assert!(loss.contains("the application did not call Locker::alive for"), "{loss}");
}
