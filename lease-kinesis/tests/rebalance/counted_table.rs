//! A worker's way to the table: what is asked on it is counted, and it may be cut or throttled.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::conformance::{Fault, Faulty, Simulation};
use lease_core::{
    Attributes, Beat, Change, Claim, FencingToken, Freed, Grant, Heartbeat, Holder, LeaseKey,
    LeaseRecord, LeaseTable, Lessee, LockStore, Obtained, StoreError, Written,
};
use lease_memory::MemoryStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;

use crate::fleet::Costs;

/// What all workers' ways have in common.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) costs: Costs,
    /// Claims that found the row held.
    pub(crate) failed_claims: u64,
    /// Rows written under a token that was not the last granted.
    pub(crate) stale_writes: u64,
    granted: BTreeMap<LeaseKey, FencingToken>,
}

/// The table as one worker reaches it. It tells nobody when a lease is free, as DynamoDB does not,
/// unless it is [told](Telling::Tells) to.
pub(crate) struct Way {
    store: MemoryStore,
    telling: Telling,
    traffic: Arc<Mutex<Traffic>>,
}

/// Whether a store tells who waits for a lease that it is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    Tells,
    Silent,
}

/// What is wrong with one way.
#[derive(Clone)]
pub(crate) struct Trouble(Arc<Mutex<State>>);

struct State {
    is_cut: bool,
    /// Of a hundred requests.
    throttled: u8,
    random: StdRng,
}

impl Trouble {
    pub(crate) fn new(throttled: u8, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self(Arc::new(Mutex::new(State { is_cut: false, throttled, random })))
    }

    pub(crate) fn cut(&self) {
        self.0.lock().unwrap().is_cut = true;
    }

    pub(crate) fn heal(&self) {
        self.0.lock().unwrap().is_cut = false;
    }

    fn befalls(&self) -> Option<Fault> {
        let mut state = self.0.lock().unwrap();
        if state.is_cut {
            return Some(Fault::Hang);
        }
        let throttled = state.throttled;
        let is_throttled = throttled > 0 && state.random.random_range(0..100) < throttled;
        is_throttled.then_some(Fault::Fail)
    }
}

impl Way {
    /// One to `store`, over `network`.
    pub(crate) fn to(
        store: MemoryStore,
        telling: Telling,
        traffic: Arc<Mutex<Traffic>>,
        trouble: Trouble,
        network: Handle,
    ) -> Faulty<Self> {
        let way = Faulty::new(Self { store, telling, traffic })
            .carried_by(network)
            .with_latency(Simulation::LATENCY);
        way.choose(move |_| trouble.befalls());
        way
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap()
    }

    fn obtained(&self, obtained: &Obtained) {
        let mut traffic = self.traffic();
        match obtained {
            Obtained::Granted(grant, _) => {
                traffic.granted.insert(grant.key.clone(), grant.token);
            }
            Obtained::Held(_) => traffic.failed_claims += 1,
        }
    }

    fn wrote(&self, grant: &Grant, written: Written) -> Written {
        let mut traffic = self.traffic();
        let is_last = traffic.granted.get(&grant.key) == Some(&grant.token);
        traffic.stale_writes += u64::from(written == Written::Applied && !is_last);
        written
    }

    fn writes(&self) {
        self.traffic().costs.writes += 1;
    }

    fn reads(&self, rows: usize) {
        self.traffic().costs.reads += rows as u64;
    }
}

#[async_trait]
impl LockStore for Way {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        self.writes();
        let obtained = self.store.obtain(claim).await?;
        self.obtained(&obtained);
        Ok(obtained)
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.writes();
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.writes();
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.writes();
        let obtained = self.store.adopt(grant, claim).await?;
        self.obtained(&obtained);
        Ok(obtained)
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.reads(1);
        self.store.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        match self.telling {
            Telling::Tells => self.store.watch(key).await,
            Telling::Silent => Ok(Freed::never()),
        }
    }

    fn grain(&self) -> Duration {
        self.store.grain()
    }
}

#[async_trait]
impl LeaseTable for Way {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        self.reads(1);
        self.store.read(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let records = self.store.list(prefix);
        let listing = async move {
            let listed: Vec<_> = records.collect().await;
            self.reads(listed.len());
            stream::iter(listed)
        };
        stream::once(listing).flatten().boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        self.writes();
        self.store.create(key, attributes).await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        self.writes();
        Ok(self.wrote(grant, self.store.update(grant, change).await?))
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.writes();
        Ok(self.wrote(grant, self.store.transfer(grant, to, reserved).await?))
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.writes();
        Ok(self.wrote(grant, self.store.delete(grant).await?))
    }

    async fn evict(&self, key: &LeaseKey, token: FencingToken) -> Result<bool, StoreError> {
        self.writes();
        self.store.evict(key, token).await
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").finish_non_exhaustive()
    }
}
