//! A locker on its own thread, beside an application that blocks its runtime.

use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use lease_core::store::LockStore;
use lease_core::{Lease, LeaseOptions, Locker, LossCause, Released, StoreError, StoreErrorKind};
use lease_memory::MemoryStore;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use crate::{key, obtained};

/// Even a busy machine schedules each thread within this time.
const TTL: Duration = Duration::from_secs(2);
const WORKERS: usize = 2;
const LIMIT: Duration = Duration::from_secs(300);

fn application() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_time().build().unwrap()
}

fn block_all_workers(application: &Runtime, length: Duration) {
    let all_blocked = Arc::new(Barrier::new(WORKERS));
    let blocked: Vec<_> = (0..WORKERS)
        .map(|_| {
            let all_blocked = Arc::clone(&all_blocked);
            application.spawn(async move {
                all_blocked.wait();
                thread::sleep(length);
                all_blocked.wait();
            })
        })
        .collect();
    for worker in blocked {
        application.block_on(worker).unwrap();
    }
}

async fn on_own_thread(store: MemoryStore) -> Locker {
    let locker = Locker::on_own_thread(async || Ok::<_, StoreError>(store)).await.unwrap();
    locker.with_options(LeaseOptions::new(TTL).unwrap())
}

async fn some_leases(locker: &Locker) -> Vec<Lease> {
    let mut leases = Vec::new();
    for number in 0..100 {
        leases.push(obtained(locker, &format!("{number}")).await);
    }
    leases
}

#[test]
fn locker_on_own_thread_keeps_leases_of_blocked_application() {
    let application = application();
    let leases = application.block_on(async {
        let locker = on_own_thread(MemoryStore::new()).await;
        some_leases(&locker).await
    });

    block_all_workers(&application, TTL * 10);

    assert_eq!(leases.iter().filter(|lease| lease.is_held()).count(), leases.len());
}

/// A control: a locker without its own thread loses the leases.
#[test]
fn locker_on_runtime_loses_leases_of_blocked_application() {
    let application = application();
    let leases = application.block_on(async {
        let options = LeaseOptions::new(TTL).unwrap();
        let locker = Locker::new(MemoryStore::new()).with_options(options);
        tokio::spawn(async move { some_leases(&locker).await }).await.unwrap()
    });

    block_all_workers(&application, TTL * 2);

    assert_eq!(leases.iter().filter(|lease| lease.is_held()).count(), 0);
}

#[test]
fn silent_application_loses_its_leases_at_the_watchdogs_limit() {
    let application = application();
    let (locker, lease) = application.block_on(async {
        let store = MemoryStore::new();
        let locker = on_own_thread(store).await.with_watchdog(TTL);
        let lease = obtained(&locker, "job").await;
        (locker, lease)
    });

    for _ in 0..6 {
        locker.alive();
        block_all_workers(&application, TTL / 2);
    }
    assert!(lease.is_held());
    let lost = application.block_on(async { timeout(LIMIT, lease.lost()).await });

    assert_eq!(lost.unwrap().cause, LossCause::Expired);
}

#[derive(Debug)]
struct ReportsDrop(std::sync::mpsc::Sender<()>);

impl Drop for ReportsDrop {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn thread_ends_with_the_last_handle_once_leases_are_released() {
    let (ended, end) = std::sync::mpsc::channel();
    let store = MemoryStore::new();
    let application = Builder::new_current_thread().enable_time().build().unwrap();
    application.block_on(async {
        let shared = store.clone();
        let locker = Locker::on_own_thread(async move || {
            let reports = ReportsDrop(ended);
            tokio::spawn(async move {
                let _reports = reports;
                std::future::pending::<()>().await;
            });
            Ok::<_, StoreError>(shared)
        })
        .await
        .unwrap();
        let lease = obtained(&locker, "job").await;
        drop(locker.clone());
        drop(locker);
        assert!(end.try_recv().is_err(), "the thread ended while a lease was held");
        drop(lease);
    });

    end.recv_timeout(LIMIT).unwrap();
    let holder = application.block_on(store.holder(&key("job"))).unwrap();
    assert_eq!(holder, None, "the thread ended before it released the lease");
}

#[tokio::test]
async fn closing_waits_for_releases_on_the_thread() {
    let store = MemoryStore::new();
    let locker = on_own_thread(store.clone()).await;
    drop(some_leases(&locker).await);

    locker.close().await;

    for number in 0..100 {
        assert_eq!(store.holder(&key(&format!("{number}"))).await.unwrap(), None);
    }
    assert_eq!(obtained(&locker, "1").await.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn thread_that_cannot_connect_ends_with_the_error() {
    let (ended, end) = std::sync::mpsc::channel();
    let reports = ReportsDrop(ended);
    let refused = Locker::on_own_thread(async move || {
        let _reports = reports;
        Err::<MemoryStore, _>(StoreError::new(StoreErrorKind::Denied, "no"))
    });

    assert_eq!(refused.await.unwrap_err().kind(), StoreErrorKind::Denied);
    end.recv_timeout(LIMIT).unwrap();

    let panics = Locker::on_own_thread(async || -> Result<MemoryStore, StoreError> {
        panic!("a bug of the store")
    });
    assert_eq!(panics.await.unwrap_err().kind(), StoreErrorKind::Misconfigured);
}

#[test]
fn caller_outside_a_runtime_uses_a_locker_with_its_own_thread() {
    assert!(Handle::try_current().is_err());
    let locker = block_on(on_own_thread(MemoryStore::new()));
    let job = key("job");

    let lease = block_on(locker.wait_until_obtained(&job)).unwrap();
    assert!(block_on(locker.holder(&job)).unwrap().is_some());
    let work = block_on(lease.run_until_lost(async { 7 }));
    assert_eq!(work.unwrap(), 7);
    assert_eq!(block_on(lease.release()).unwrap(), Released::Freed);
    block_on(locker.close());
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}
