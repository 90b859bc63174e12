//! A store that hangs or is slow for some keys.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::{
    Beat, BootClock, Claim, Clock, Freed, Grant, Heartbeat, LockStore, Obtained,
};
use lease_core::{
    Holder, Lease, LeaseKey, LeaseOptions, Locker, Metrics, StoreError, StoreErrorKind,
};
use lease_memory::MemoryStore;
use tokio::task::yield_now;
use tokio::time::{advance, sleep};
use tokio_util::sync::CancellationToken;

use crate::{TTL, key, obtained, soon};

/// Requests for keys that begin with `hang` hang.
#[derive(Debug, Clone)]
struct PartlyHanging(MemoryStore);

async fn hangs(key: &LeaseKey) {
    if key.as_str().starts_with("hang") {
        pending::<()>().await;
    }
}

#[async_trait]
impl LockStore for PartlyHanging {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        if claim.key.as_str() == "hang/obtain" {
            pending::<()>().await;
        }
        self.0.obtain(claim).await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        hangs(&grant.key).await;
        self.0.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        if grant.key.as_str() == "slow release" {
            sleep(Duration::from_secs(1)).await;
        }
        self.0.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.0.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.0.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        hangs(key).await;
        self.0.watch(key).await
    }

    fn grain(&self) -> Duration {
        Duration::from_secs(5)
    }
}

#[derive(Debug, Default)]
struct LeastMargin(std::sync::Mutex<Option<Duration>>);

impl Metrics for LeastMargin {
    fn heartbeat(&self, _: &LeaseKey, _: Duration, margin: Duration, _: Duration) {
        let mut least = self.0.lock().unwrap();
        *least = Some(least.map_or(margin, |least| least.min(margin)));
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_keys_delay_no_heartbeat_of_other_keys() {
    let least = Arc::new(LeastMargin::default());
    let locker = Locker::new(PartlyHanging(MemoryStore::new()))
        .with_metrics(Arc::clone(&least) as Arc<dyn Metrics>);
    // More heartbeats hang than may be sent at once.
    let mut hanging = Vec::new();
    for number in 0..10_000 {
        hanging.push(obtained(&locker, &format!("hang/{number}")).await);
    }
    let mut others = Vec::new();
    for number in 0..100 {
        others.push(obtained(&locker, &format!("other/{number}")).await);
    }

    sleep(TTL * 3).await;

    assert!(hanging.iter().all(|lease| !lease.is_held()));
    assert!(others.iter().all(Lease::is_held));
    // The store's clock has a grain of 5 s, so the safe ttl is 24.7 s. The period of heartbeats is
    // 10 s.
    let least = least.0.lock().unwrap().unwrap();
    assert!(least > Duration::from_secs(12), "{least:?}");
}

/// Waits until the maximum number of concurrent heartbeats hang. The heartbeats of the other leases
/// are then queued.
async fn leases_with_queued_heartbeats(store: &Faulty<MemoryStore>, locker: &Locker) -> Vec<Lease> {
    store.every(Call::Heartbeat, Fault::Hang);
    let mut leases = Vec::new();
    for number in 0..AT_ONCE + OTHERS {
        leases.push(obtained(locker, &format!("{number}")).await);
    }
    advance(PERIOD).await;
    soon(async {
        while store.calls(Call::Heartbeat) < AT_ONCE {
            yield_now().await;
        }
    })
    .await;
    leases
}

#[tokio::test(start_paused = true)]
async fn queued_heartbeats_start_when_hanging_beats_count_as_slow() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let leases = leases_with_queued_heartbeats(&store, &locker).await;

    sleep((PERIOD / 16).saturating_sub(Duration::from_millis(5))).await;
    assert_eq!(store.calls(Call::Heartbeat), AT_ONCE);
    store.heal();
    sleep(Duration::from_millis(10)).await;
    assert_eq!(store.calls(Call::Heartbeat), AT_ONCE + OTHERS);

    // The hanging heartbeats time out, and are sent again.
    sleep(TTL * 3).await;
    assert!(leases.iter().all(Lease::is_held));
}

#[tokio::test(start_paused = true)]
async fn lease_with_a_queued_heartbeat_is_lost_in_time() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let leases = leases_with_queued_heartbeats(&store, &locker).await;
    let works: Vec<_> = leases.iter().map(Lease::cancelled_on_loss).collect();

    // No heartbeat counts as slow until all leases have nearly expired.
    advance(leases[0].remaining().saturating_sub(Duration::from_millis(1))).await;
    soon(join_all(works.iter().map(CancellationToken::cancelled))).await;
    assert!(leases.iter().all(Lease::is_held));
    sleep(Duration::from_millis(2)).await;

    soon(join_all(leases.iter().map(Lease::lost))).await;
}

#[tokio::test(start_paused = true)]
async fn released_lease_sends_no_queued_heartbeat() {
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone());
    let mut leases = leases_with_queued_heartbeats(&store, &locker).await;

    for lease in leases.drain(..) {
        lease.release().await.unwrap();
    }
    store.heal();
    for number in 0..OTHERS {
        leases.push(obtained(&locker, &format!("later/{number}")).await);
    }
    sleep(PERIOD / 4).await;

    assert_eq!(store.calls(Call::Heartbeat), AT_ONCE, "later leases have no heartbeat due");
    sleep(TTL * 3).await;
    assert!(leases.iter().all(Lease::is_held));
}

#[tokio::test(start_paused = true)]
async fn coarse_store_clock_shortens_the_safe_ttl() {
    let locker = Locker::new(PartlyHanging(MemoryStore::new()));
    assert!(
        obtained(&locker, "job").await.remaining() <= TTL.saturating_sub(Duration::from_secs(5))
    );

    let short = locker.with_options(LeaseOptions::new(Duration::from_secs(5)).unwrap());
    let error = short.obtain(&key("short")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
}

#[tokio::test(start_paused = true)]
async fn hanging_key_does_not_block_another_key() {
    for seed in 0..20 {
        let locker = Locker::new(PartlyHanging(MemoryStore::new())).with_seed(seed);
        let keys = [key("hang/obtain"), key("free")];
        let start = BootClock::new().now();

        let lease = soon(locker.wait_until_any_obtained(&keys)).await.unwrap();

        assert_eq!(lease.key().as_str(), "free");
        let took = BootClock::new().now().since(start);
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn next_waiter_claims_after_the_release_request() {
    let store = Faulty::new(PartlyHanging(MemoryStore::new()));
    let locker = Locker::new(store.clone());
    let first = locker.wait_until_obtained(&key("slow release")).await.unwrap();
    let waiting = tokio::spawn({
        let locker = locker.clone();
        async move { locker.wait_until_obtained(&key("slow release")).await }
    });
    yield_now().await;

    drop(first);
    let second = soon(waiting).await.unwrap().unwrap();

    assert!(second.is_held());
    assert_eq!(store.calls(Call::Obtain), 2, "the waiter claimed a key that was still held");
}

const AT_ONCE: usize = 4096;
const OTHERS: usize = 900;
const PERIOD: Duration = Duration::from_secs(10);
