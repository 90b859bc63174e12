//! What a lease costs where the store costs next to nothing: the locker's own part.
#![expect(clippy::unwrap_used, reason = "a bench may fail")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use lease_core::{LeaseKey, Locker};
use lease_memory::MemoryStore;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

/// One obtained and given back, and nobody else there.
fn uncontended(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("uncontended");

    let (locker, key) = (Locker::new(MemoryStore::new()), key());
    group.bench_function("lease", |bencher| {
        bencher.to_async(&runtime).iter(async || {
            let lease = locker.obtain(&key).await.unwrap().lease().unwrap();
            lease.release().await.unwrap()
        });
    });

    let mutex = Mutex::new(());
    group.bench_function("tokio mutex", |bencher| {
        bencher.to_async(&runtime).iter(async || drop(mutex.lock().await));
    });
    group.finish();
}

/// Everybody waits for one key, and each gets it once: the time from one to the next.
fn hand_off(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("hand-off, 64 waiters");
    group.throughput(Throughput::Elements(WAITERS));

    // They stand in line within the locker: the store sees one of them at a time.
    let (locker, key) = (Locker::new(MemoryStore::new()), key());
    let clones: Vec<_> = (0..WAITERS).map(|_| locker.clone()).collect();
    group.bench_function("one locker", |bencher| {
        bencher.to_async(&runtime).iter(|| everybody(&clones, &key));
    });

    // As 64 processes would: a release wakes them all, and one of them gets the key.
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
    // `join!` polls in order: all are in line when the first is released.
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
