//! A worker's connection to the table: counts requests, and injects outages and throttling.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::conformance::{Fault, Faulty, Simulation};
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, LeaseRecord, LeaseTable, LockStore, Obtained, Parent,
    SessionState, Sessions, Vacancy,
};
use lease_core::{
    Attributes, Change, FencingToken, GrantId, Holder, LeaseKey, Lessee, StoreError, Written,
};
use lease_memory::MemoryStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;

use crate::fleet::Costs;
use crate::read_units;

#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) costs: Costs,
    pub(crate) failed_claims: u64,
    /// Writes that the store accepted under a token other than the last granted token.
    pub(crate) stale_writes: u64,
    granted: BTreeMap<LeaseKey, FencingToken>,
}

/// By default, delivers no notifications of free leases, as with DynamoDB.
pub(crate) struct CountedTable {
    store: MemoryStore,
    notifications: Notifications,
    traffic: Arc<Mutex<Traffic>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notifications {
    Sent,
    None,
}

#[derive(Clone)]
pub(crate) struct TableFault(Arc<Mutex<State>>);

struct State {
    is_cut: bool,
    throttled: u8,
    random: StdRng,
}

impl TableFault {
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

    fn next(&self) -> Option<Fault> {
        let mut state = self.0.lock().unwrap();
        if state.is_cut {
            return Some(Fault::Hang);
        }
        let throttled = state.throttled;
        let is_throttled = throttled > 0 && state.random.random_range(0..100) < throttled;
        is_throttled.then_some(Fault::Fail)
    }
}

impl CountedTable {
    pub(crate) fn to(
        store: MemoryStore,
        notifications: Notifications,
        traffic: Arc<Mutex<Traffic>>,
        fault: TableFault,
        network: Handle,
    ) -> Faulty<Self> {
        let table = Faulty::new(Self { store, notifications, traffic })
            .carried_by(network)
            .with_latency(Simulation::LATENCY);
        table.choose(move |_| fault.next());
        table
    }

    /// A table without a network.
    pub(crate) fn direct(store: MemoryStore, traffic: Arc<Mutex<Traffic>>) -> Self {
        Self { store, notifications: Notifications::None, traffic }
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

    fn reads(&self, rows: usize, half_units: u64) {
        let mut traffic = self.traffic();
        traffic.costs.reads += rows as u64;
        traffic.costs.half_units += half_units;
    }
}

#[async_trait]
impl LockStore for CountedTable {
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
        self.reads(1, read_units::CONSISTENT);
        self.store.holder(key).await
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.writes();
        self.store.evict(key, grant).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        match self.notifications {
            Notifications::Sent => self.store.watch(key).await,
            Notifications::None => Ok(Freed::never()),
        }
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }

    fn grain(&self) -> Duration {
        self.store.grain()
    }
}

#[async_trait]
impl Sessions for CountedTable {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        self.writes();
        let obtained = self.store.obtain_under(claim, vacancy).await?;
        self.obtained(&obtained);
        Ok(obtained)
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        self.writes();
        self.store.end_session(session).await
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let read = self.store.read_all(keys).await;
        let records = read.iter().map(|record| record.as_ref().ok().and_then(Option::as_ref));
        self.reads(keys.len(), read_units::of_keys(&records.collect::<Vec<_>>()));
        read
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        self.writes();
        self.store.count(key, name).await
    }
}

#[async_trait]
impl LeaseTable for CountedTable {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let read = self.store.read(key).await;
        let record = read.as_ref().ok().and_then(Option::as_ref);
        self.reads(1, read_units::of_keys(&[record]));
        read
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let records = self.store.list(prefix);
        let listing = async move {
            let listed: Vec<_> = records.collect().await;
            let records: Vec<_> = listed.iter().flatten().collect();
            self.reads(listed.len(), read_units::of_list(&records));
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
}

impl fmt::Debug for CountedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedTable").finish_non_exhaustive()
    }
}
