//! Waiting on a store that reports implausible expiries and wake-ups.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::once;
use lease_core::store::{Beat, Change, Claim, Freed, Grant, Heartbeat, LockStore, Obtained};
use lease_core::{Holder, LeaseKey, Locker, StoreError};
use lease_memory::MemoryStore;
use tokio::time::timeout;

use crate::{TTL, key};

/// The first function returns the expiry of the holder, and the second function the result of a
/// watch.
struct Scripted<O, W>(MemoryStore, AtomicUsize, O, W);

impl<O, W> fmt::Debug for Scripted<O, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

#[async_trait]
impl<O, W> LockStore for Scripted<O, W>
where
    O: Fn() -> Option<Duration> + Send + Sync + 'static,
    W: Fn() -> Freed + Send + Sync + 'static,
{
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let token = lease_core::FencingToken::new(1).unwrap();
        Ok(Obtained::Held(Holder::new(claim.lessee.clone(), (self.2)()).named_by(token)))
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

    async fn watch(&self, _key: &LeaseKey) -> Result<Freed, StoreError> {
        Ok((self.3)())
    }
}

async fn requests_in_ten_seconds<O, W>(expires_in: O, watch: W) -> usize
where
    O: Fn() -> Option<Duration> + Send + Sync + 'static,
    W: Fn() -> Freed + Send + Sync + 'static,
{
    let store = Arc::new(Scripted(MemoryStore::new(), AtomicUsize::new(0), expires_in, watch));
    let locker = Locker::new(Arc::clone(&store));
    let waited = timeout(Duration::from_secs(10), locker.wait_until_obtained(&key("job"))).await;
    assert!(waited.is_err());
    store.1.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn waiter_limits_its_rate_of_requests() {
    let never = || Freed::never();
    let at_once = || Freed::when(ready(()));
    let crowded = || Freed::changes(once(ready(Change::Freed { watches: Some(64) })));

    let run_out = requests_in_ten_seconds(|| Some(Duration::ZERO), never).await;
    let for_ever = requests_in_ten_seconds(|| Some(Duration::MAX), never).await;
    let silent = requests_in_ten_seconds(|| None, never).await;
    let woken_for_nothing = requests_in_ten_seconds(|| Some(TTL), at_once).await;

    for requests in [run_out, for_ever, silent] {
        assert!((6..=20).contains(&requests), "{requests} requests in ten seconds");
    }
    assert!(woken_for_nothing < 100, "{woken_for_nothing} requests in ten seconds");
    let in_a_crowd = requests_in_ten_seconds(|| Some(TTL), crowded).await;
    assert!((1..1_000).contains(&in_a_crowd), "{in_a_crowd} requests in ten seconds");
}
