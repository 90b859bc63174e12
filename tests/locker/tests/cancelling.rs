//! Every public future, dropped after every number of polls: the key is free again without any
//! time passing, and no task is left.

#![expect(clippy::unwrap_used, reason = "a test")]

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

/// More polls than any of the futures needs.
const MANY: usize = 60;

#[test]
fn obtain() {
    at_every_poll(async |world, polls| dropped_after(polls, world.locker.obtain(&key("a"))).await);
}

#[test]
fn obtain_any() {
    at_every_poll(async |world, polls| {
        dropped_after(polls, world.locker.obtain_any(&[key("a"), key("b")])).await
    });
}

#[test]
fn wait_until_obtained_for_a_free_key() {
    at_every_poll(async |world, polls| {
        dropped_after(polls, world.locker.wait_until_obtained(&key("a"))).await
    });
}

#[test]
fn wait_until_obtained_for_a_key_that_is_released_meanwhile() {
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
fn wait_until_any_obtained() {
    at_every_poll(async |world, polls| {
        let held = world.held("a").await;
        let keys = [key("a"), key("b")];
        let done = dropped_after(polls, world.other.wait_until_any_obtained(&keys)).await;
        drop(held);
        done
    });
}

#[test]
fn waiting_in_line_behind_another_of_the_same_process() {
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
fn release() {
    at_every_poll(async |world, polls| {
        let lease = world.held("a").await;
        dropped_after(polls, lease.release()).await
    });
}

#[test]
fn release_reserved() {
    at_every_poll(async |world, polls| {
        let lease = world.held("a").await;
        dropped_after(polls, lease.release_reserved(Reservation::clamped(Duration::ZERO))).await
    });
}

#[test]
fn hand_over() {
    at_every_poll(async |world, polls| {
        let lease = world.held("a").await;
        let mut handing = Box::pin(lease.hand_over(Ttl::clamped(Duration::from_mins(1))));
        let Some(handed) = polled(polls, &mut handing).await else {
            return false;
        };
        // Handed over indeed: whoever has it, has to resume it.
        let Handed::Over(handed) = handed.unwrap() else { unreachable!("nobody took it") };
        drop(world.other.resume(handed).await.unwrap());
        true
    });
}

#[test]
fn resume() {
    at_every_poll(async |world, polls| {
        let lease = world.held("a").await;
        let Ok(Handed::Over(handed)) = lease.hand_over(Ttl::clamped(Duration::from_mins(1))).await
        else {
            unreachable!("nobody took it")
        };
        // Not polled at all, it is still the hand-over's.
        dropped_after(polls.max(1), world.other.resume(handed)).await
    });
}

#[test]
fn what_runs_until_lost() {
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
fn holder() {
    at_every_poll(async |world, polls| dropped_after(polls, world.locker.holder(&key("a"))).await);
}

/// Two lockers on one store, whose answers take a few polls.
struct World {
    store: MemoryStore,
    locker: Locker,
    other: Locker,
}

impl World {
    fn new() -> Self {
        let store = MemoryStore::counting_from_one();
        let locker = || Locker::new(Hesitant(store.clone()));
        Self { locker: locker(), other: locker(), store }
    }

    async fn held(&self, name: &str) -> Lease {
        let Ok(Attempt::Obtained(lease)) = self.locker.obtain(&key(name)).await else {
            unreachable!("nobody else has it")
        };
        lease
    }
}

/// Runs `story` in a fresh world for each number of polls, until it runs to its end.
#[expect(clippy::needless_pass_by_value, reason = "a story reads better without `&`")]
fn at_every_poll(story: impl AsyncFn(&World, usize) -> bool) {
    for polls in 0..MANY {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let ran_to_its_end = runtime.block_on(async {
            let world = World::new();
            let start = BootClock::new().now();

            let ran_to_its_end = story(&world, polls).await;
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
            ran_to_its_end
        });
        if ran_to_its_end {
            assert!(polls > 0, "a story that needs no poll drops nothing");
            return;
        }
    }
    unreachable!("not done after {MANY} polls");
}

/// Polls `future` so many times, the other tasks in between, and drops it; says whether it
/// completed.
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

/// A store whose every answer takes a few polls, before and after it is applied.
#[derive(Debug, Clone)]
struct Hesitant(MemoryStore);

async fn hesitate() {
    yield_now().await;
    yield_now().await;
}

#[async_trait]
impl LockStore for Hesitant {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        hesitate().await;
        let answer = self.0.obtain(claim).await;
        hesitate().await;
        answer
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        hesitate().await;
        let answer = self.0.heartbeat(grant, beat).await;
        hesitate().await;
        answer
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        hesitate().await;
        let answer = self.0.release(grant, reserved).await;
        hesitate().await;
        answer
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        hesitate().await;
        let answer = self.0.adopt(grant, claim).await;
        hesitate().await;
        answer
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        hesitate().await;
        self.0.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        hesitate().await;
        let freed = self.0.watch(key).await;
        hesitate().await;
        freed
    }
}
