//! Measures the locker's part of a lease, on a store that costs almost nothing.
#![expect(clippy::unwrap_used, reason = "a bench may fail")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use lease_core::{LeaseKey, Locker};
use lease_memory::MemoryStore;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

fn uncontended(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("uncontended");

    let (locker, key) = (Locker::new(MemoryStore::new()), key());
    group.bench_function("lease", |bencher| {
        bencher.to_async(&runtime).iter(async || {
            let lease = locker.obtain(&key).await.unwrap().into_lease().unwrap();
            lease.release().await.unwrap()
        });
    });

    let mutex = Mutex::new(());
    group.bench_function("tokio mutex", |bencher| {
        bencher.to_async(&runtime).iter(async || drop(mutex.lock().await));
    });
    group.finish();
}

/// Measures the time between two grants, if all tasks wait for one key.
fn hand_off(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("hand-off, 64 waiters");
    group.throughput(Throughput::Elements(WAITERS));

    // The waiters of one locker queue in the locker. Only the first waiter sends requests.
    let (locker, key) = (Locker::new(MemoryStore::new()), key());
    let clones: Vec<_> = (0..WAITERS).map(|_| locker.clone()).collect();
    group.bench_function("one locker", |bencher| {
        bencher.to_async(&runtime).iter(|| everybody(&clones, &key));
    });

    // 64 lockers behave like 64 processes: the waiters queue in the store.
    let store = MemoryStore::new();
    let lockers: Vec<_> = (0..WAITERS).map(|_| Locker::new(store.clone())).collect();
    group.bench_function("64 lockers", |bencher| {
        bencher.to_async(&runtime).iter(|| everybody(&lockers, &key));
    });

    let mutex = Mutex::new(());
    group.bench_function("tokio mutex", |bencher| {
        bencher.to_async(&runtime).iter(async || {
            let first = mutex.lock().await;
            let waiters = join_all((0..WAITERS).map(async |_| drop(mutex.lock().await)));
            tokio::join!(waiters, async { drop(first) })
        });
    });
    group.finish();
}

async fn everybody(lockers: &[Locker], key: &LeaseKey) {
    let first = lockers.first().unwrap().wait_until_obtained(key).await.unwrap();
    let waiters = join_all(lockers.iter().map(async |locker| {
        let lease = locker.wait_until_obtained(key).await.unwrap();
        lease.release().await.unwrap();
    }));
    // `join!` polls in order, so all waiters are queued before the first lease is released.
    tokio::join!(waiters, async { first.release().await.unwrap() });
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn key() -> LeaseKey {
    "key".parse().unwrap()
}

const WAITERS: u64 = 64;

criterion_group!(leases, uncontended, hand_off);
criterion_main!(leases);
