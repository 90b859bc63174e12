//! Lockers that race for a key.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use lease_core::conformance::{Call, Faulty};
use lease_core::store::{
    Beat, BootClock, Change, Claim, Clock, Freed, Grant, Heartbeat, LockStore, Obtained,
};
use lease_core::{Holder, LeaseKey, LeaseOptions, Locker, StoreError, Waiting};
use lease_memory::MemoryStore;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{key, obtained};

const WAITERS: u64 = 64;

const HELD_FOR: Duration = Duration::from_millis(100);

/// Much longer than one millisecond, the smallest step of paused time.
const LATENCY: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Untold {
    Count,
    Taken,
}

#[derive(Debug, Clone)]
struct Silent(Faulty<MemoryStore>, Untold);

#[async_trait]
impl LockStore for Silent {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        self.0.obtain(claim).await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.0.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.0.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.0.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.0.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let (freed, untold) = (self.0.watch(key).await?, self.1);
        Ok(Freed::changes(stream::unfold(freed, move |mut freed| async move {
            let change = match (freed.next().await, untold) {
                (Change::Freed { .. }, Untold::Count) => Change::Freed { watches: None },
                (Change::Taken, Untold::Taken) => freed.next().await,
                (change, _) => change,
            };
            Some((change, freed))
        })))
    }
}

#[derive(Debug)]
struct Figures {
    attempts: f64,
    free: Vec<Duration>,
}

fn store() -> Faulty<MemoryStore> {
    Faulty::new(MemoryStore::counting_from_one()).with_latency(LATENCY)
}

fn racing(store: &(impl LockStore + Clone), seed: u64) -> Locker {
    let options = LeaseOptions::new(Duration::from_secs(30)).unwrap();
    Locker::new(store.clone()).with_options(options.with_waiting(Waiting::Racing)).with_seed(seed)
}

async fn hand_overs(
    store: impl LockStore + Clone,
    calls: &Faulty<MemoryStore>,
    waiters: u64,
) -> Figures {
    let clock = BootClock::new();
    let locker = |seed| racing(&store, seed);
    let held = obtained(&locker(0), "job").await;
    let released = Arc::new(Mutex::new(clock.now()));
    let free = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for seed in 1..=waiters {
        let (locker, released, free) = (locker(seed), Arc::clone(&released), Arc::clone(&free));
        tasks.spawn(async move {
            let lease = locker.wait_until_obtained(&key("job")).await.unwrap();
            free.lock().push(clock.now().since(*released.lock()));
            sleep(HELD_FOR).await;
            *released.lock() = clock.now();
            lease.release().await.unwrap();
        });
    }
    sleep(HELD_FOR).await;
    let before = calls.calls(Call::Obtain);

    *released.lock() = clock.now();
    held.release().await.unwrap();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }

    let mut free = std::mem::take(&mut *free.lock());
    free.sort_unstable();
    let attempts = u32::try_from(calls.calls(Call::Obtain) - before).unwrap();
    let attempts = f64::from(attempts) / f64::from(u32::try_from(waiters).unwrap());
    Figures { attempts, free }
}

#[tokio::test(start_paused = true)]
async fn hand_over_among_64_waiters_takes_few_attempts() {
    let store = store();

    let figures = hand_overs(store.clone(), &store, WAITERS).await;

    assert!(figures.attempts < 3.0, "{}", figures.attempts);
    let median = figures.free[figures.free.len() / 2];
    assert!(median <= LATENCY * 4, "most grants follow the release soon: {median:?}");
    let longest = figures.free.last().unwrap();
    assert!(*longest <= LATENCY * 20, "each release is followed by an attempt: {longest:?}");
}

/// A control: without the number of waiters, each waiter makes an attempt.
#[tokio::test(start_paused = true)]
async fn uncounted_waiters_all_make_an_attempt() {
    let store = store();

    let figures = hand_overs(Silent(store.clone(), Untold::Count), &store, WAITERS).await;

    assert!(figures.attempts > 20.0, "{}", figures.attempts);
}

/// A second control: without a notice that the key was taken, each waiter makes its attempt.
#[tokio::test(start_paused = true)]
async fn lost_notices_of_a_taken_key_cost_only_attempts() {
    let store = store();

    let figures = hand_overs(Silent(store.clone(), Untold::Taken), &store, WAITERS).await;

    assert!(figures.attempts > 10.0, "{}", figures.attempts);
    let longest = figures.free.last().unwrap();
    assert!(*longest <= LATENCY * 20, "each release is followed by an attempt: {longest:?}");
}

#[tokio::test(start_paused = true)]
async fn few_waiters_lose_no_time() {
    for waiters in 1..=3 {
        let store = store();

        let figures = hand_overs(store.clone(), &store, waiters).await;

        assert!(figures.free.iter().all(|free| *free <= LATENCY * 4), "{figures:?}");
    }
}

/// After each release, about one of the waiters claims the key at once. So the last holder may
/// lose.
#[tokio::test(start_paused = true)]
async fn locker_that_claims_again_at_once_is_not_always_granted_next() {
    let store = store();
    let locker = racing(&store, 0);
    let mut others = JoinSet::new();
    let mut lease = obtained(&locker, "job").await;
    for seed in 1..=8 {
        let other = racing(&store, seed);
        others.spawn(async move {
            let lease = other.wait_until_obtained(&key("job")).await.unwrap();
            lease.release().await.unwrap();
        });
    }

    let mut grants = 0;
    while !others.is_empty() && grants < 200 {
        sleep(HELD_FOR).await;
        lease.release().await.unwrap();
        lease = locker.wait_until_obtained(&key("job")).await.unwrap();
        grants += 1;
        while others.try_join_next().is_some() {}
    }

    assert!(grants < 100, "{grants}");
}
