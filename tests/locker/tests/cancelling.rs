//! Drops each public future after every possible number of polls. Afterwards, the key must be free
//! at once, and no task may be left.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::poll;
use lease_core::store::{
    Beat, BootClock, Claim, Clock, Freed, Grant, Heartbeat, LockStore, Obtained,
};
use lease_core::{Attempt, Handed, Holder, Lease, LeaseKey, Locker, Reservation, StoreError, Ttl};
use lease_memory::MemoryStore;
use tokio::runtime::Handle;
use tokio::task::yield_now;

/// Every future completes in fewer polls.
const MANY: usize = 60;

#[test]
fn dropped_obtain_leaves_key_free() {
    at_every_poll(async |world, polls| dropped_after(polls, world.locker.obtain(&key("a"))).await);
}

#[test]
fn dropped_obtain_any_leaves_keys_free() {
    at_every_poll(async |world, polls| {
        dropped_after(polls, world.locker.obtain_any(&[key("a"), key("b")])).await
    });
}

#[test]
fn dropped_wait_for_a_free_key_leaves_it_free() {
    at_every_poll(async |world, polls| {
        dropped_after(polls, world.locker.wait_until_obtained(&key("a"))).await
    });
}

#[test]
fn dropped_wait_for_a_released_key_leaves_it_free() {
    at_every_poll(async |world, polls| {
        let held = world.held("a").await;
        let a = key("a");
        let mut waiting = Box::pin(world.other.wait_until_obtained(&a));
        drop(polled(polls / 2, &mut waiting).await);
        drop(held);
        dropped_after(polls - polls / 2, waiting).await
    });
}

#[test]
fn dropped_wait_for_any_key_leaves_keys_free() {
    at_every_poll(async |world, polls| {
        let held = world.held("a").await;
        let keys = [key("a"), key("b")];
        let done = dropped_after(polls, world.other.wait_until_any_obtained(&keys)).await;
        drop(held);
        done
    });
}

#[test]
fn dropped_wait_in_the_queue_leaves_key_free() {
    at_every_poll(async |world, polls| {
        let a = key("a");
        let first = world.locker.wait_until_obtained(&a).await.unwrap();
        let mut waiting = Box::pin(world.locker.wait_until_obtained(&a));
        drop(polled(polls / 2, &mut waiting).await);
        drop(first);
        dropped_after(polls - polls / 2, waiting).await
    });
}

#[test]
fn dropped_release_leaves_key_free() {
    at_every_poll(async |world, polls| {
        let lease = world.held("a").await;
        dropped_after(polls, lease.release()).await
    });
}

#[test]
fn dropped_release_reserved_leaves_key_free() {
    at_every_poll(async |world, polls| {
        let lease = world.held("a").await;
        dropped_after(polls, lease.release_reserved(Reservation::clamped(Duration::ZERO))).await
    });
}

#[test]
fn dropped_hand_over_leaves_key_free() {
    at_every_poll(async |world, polls| {
        let lease = world.held("a").await;
        let mut handing = Box::pin(lease.hand_over(Ttl::clamped(Duration::from_mins(1))));
        let Some(handed) = polled(polls, &mut handing).await else {
            return false;
        };
        // A completed hand-over holds the key until it is resumed.
        let Handed::Over(handed) = handed.unwrap() else { unreachable!("the lease was lost") };
        drop(world.other.resume(handed).await.unwrap());
        true
    });
}

#[test]
fn dropped_resume_leaves_key_free() {
    at_every_poll(async |world, polls| {
        let lease = world.held("a").await;
        let Ok(Handed::Over(handed)) = lease.hand_over(Ttl::clamped(Duration::from_mins(1))).await
        else {
            unreachable!("the lease was lost")
        };
        // Without a poll, the hand-over still holds the key.
        dropped_after(polls.max(1), world.other.resume(handed)).await
    });
}

#[test]
fn dropped_run_until_lost_leaves_key_free() {
    at_every_poll(async |world, polls| {
        let lease = world.held("a").await;
        let work = async {
            for _ in 0..10 {
                yield_now().await;
            }
        };
        dropped_after(polls, lease.run_until_lost(work)).await
    });
}

#[test]
fn dropped_holder_query_leaves_key_free() {
    at_every_poll(async |world, polls| dropped_after(polls, world.locker.holder(&key("a"))).await);
}

struct World {
    store: MemoryStore,
    locker: Locker,
    other: Locker,
}

impl World {
    fn new() -> Self {
        let store = MemoryStore::counting_from_one();
        let locker = || Locker::new(YieldingStore(store.clone()));
        Self { locker: locker(), other: locker(), store }
    }

    async fn held(&self, name: &str) -> Lease {
        let Ok(Attempt::Obtained(lease)) = self.locker.obtain(&key(name)).await else {
            unreachable!("the key is free")
        };
        lease
    }
}

/// Starts `story` in a new world for each number of polls, from 0 until the future completes.
#[expect(clippy::needless_pass_by_value, reason = "the calls are easier to read without `&`")]
fn at_every_poll(story: impl AsyncFn(&World, usize) -> bool) {
    for polls in 0..MANY {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let completed = runtime.block_on(async {
            let world = World::new();
            let start = BootClock::new().now();

            let completed = story(&world, polls).await;
            world.locker.close().await;
            world.other.close().await;

            for name in ["a", "b"] {
                let holder = world.store.holder(&key(name)).await.unwrap();
                assert_eq!(holder, None, "{name} after {polls} polls");
            }
            drop(world);
            for _ in 0..MANY {
                yield_now().await;
            }
            let tasks = Handle::current().metrics().num_alive_tasks();
            assert_eq!(tasks, 0, "tasks left after {polls} polls");
            let passed = BootClock::new().now().since(start);
            assert_eq!(passed, Duration::ZERO, "time passed after {polls} polls");
            completed
        });
        if completed {
            assert!(polls > 0, "the future completed without a poll, so no test dropped it");
            return;
        }
    }
    unreachable!("not done after {MANY} polls");
}

/// Runs the other tasks between the polls. Returns whether `future` completed.
async fn dropped_after<F: Future>(polls: usize, future: F) -> bool {
    let mut future = Box::pin(future);
    polled(polls, &mut future).await.is_some()
}

async fn polled<F: Future + Unpin>(polls: usize, future: &mut F) -> Option<F::Output> {
    for _ in 0..polls {
        if let std::task::Poll::Ready(output) = poll!(&mut *future) {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}

#[derive(Debug, Clone)]
struct YieldingStore(MemoryStore);

async fn yield_twice() {
    yield_now().await;
    yield_now().await;
}

#[async_trait]
impl LockStore for YieldingStore {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        yield_twice().await;
        let answer = self.0.obtain(claim).await;
        yield_twice().await;
        answer
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        yield_twice().await;
        let answer = self.0.heartbeat(grant, beat).await;
        yield_twice().await;
        answer
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        yield_twice().await;
        let answer = self.0.release(grant, reserved).await;
        yield_twice().await;
        answer
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        yield_twice().await;
        let answer = self.0.adopt(grant, claim).await;
        yield_twice().await;
        answer
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        yield_twice().await;
        self.0.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        yield_twice().await;
        let freed = self.0.watch(key).await;
        yield_twice().await;
        freed
    }
}
