//! A table with unreadable rows, failing counts, and claims that the store has lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, LeaseRecord, LeaseTable, LockStore, Obtained, Parent,
    SessionState, Sessions, Vacancy,
};
use lease_core::{
    Attributes, Change, GrantId, Holder, LeaseKey, Lessee, StoreError, StoreErrorKind, Written,
};
use lease_memory::MemoryStore;
use tokio::time::sleep;

/// One worker's connection to the table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Damaged {
    store: MemoryStore,
    unreadable: Arc<Mutex<BTreeSet<LeaseKey>>>,
    granted: Arc<Mutex<BTreeMap<LeaseKey, Grant>>>,
    /// Writes to the rows of shards are not answered.
    pub(crate) hangs: Arc<AtomicBool>,
    /// Writes to the rows of the first shards are not answered.
    pub(crate) first_hang: Arc<AtomicUsize>,
    /// The counts of this connection fail.
    pub(crate) is_throttled: Arc<AtomicBool>,
    /// The counts of this connection, failed ones included.
    pub(crate) counts: Arc<AtomicUsize>,
}

impl Damaged {
    pub(crate) fn connection(&self) -> Self {
        Self { is_throttled: Arc::default(), counts: Arc::default(), ..self.clone() }
    }

    pub(crate) fn damage(&self, key: &str) {
        self.unreadable.lock().unwrap().insert(key.parse().unwrap());
    }

    /// The number of sessions in the row `changes`.
    pub(crate) async fn counted_sessions(&self) -> usize {
        let key = "shop/changes".parse().unwrap();
        self.store.read(&key).await.unwrap().unwrap().attributes.len()
    }

    pub(crate) fn mend(&self) {
        self.unreadable.lock().unwrap().clear();
    }

    /// Loses the claims of all shards, as a failover to a replica that lags may do.
    pub(crate) async fn lose_claims(&self) {
        let granted = self.granted.lock().unwrap().clone();
        for grant in granted.values() {
            self.store.release(grant, None).await.unwrap();
        }
    }

    fn check(&self, key: &LeaseKey) -> Result<(), StoreError> {
        if self.unreadable.lock().unwrap().contains(key) {
            return Err(StoreError::new(StoreErrorKind::Corrupt, "injected by the test"));
        }
        Ok(())
    }

    async fn write(&self, key: &LeaseKey) {
        let Some(shard) = key.as_str().strip_prefix("shop/shards/") else { return };
        let number: usize = shard.rsplit('-').next().unwrap().parse().unwrap();
        let hangs = self.hangs.load(Ordering::SeqCst);
        if hangs || number < self.first_hang.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        sleep(LATENCY).await;
    }
}

#[async_trait]
impl LockStore for Damaged {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.obtain(claim).await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.store.holder(key).await
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.store.evict(key, grant).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
}

#[async_trait]
impl Sessions for Damaged {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        let obtained = self.store.obtain_under(claim, vacancy).await?;
        if let Obtained::Granted(grant, _) = &obtained {
            self.granted.lock().unwrap().insert(grant.key.clone(), grant.clone());
        }
        Ok(obtained)
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        // The store compares attributes, and does not parse the row.
        self.store.end_session(session).await
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let read = self.store.read_all(keys).await;
        keys.iter().zip(read).map(|(key, record)| self.check(key).and(record)).collect()
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        self.counts.fetch_add(1, Ordering::SeqCst);
        if self.is_throttled.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Throttled, "injected by the test"));
        }
        self.check(key)?;
        self.store.count(key, name).await
    }
}

#[async_trait]
impl LeaseTable for Damaged {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        // Meanwhile, other tasks run, such as the release of a shard.
        sleep(LATENCY).await;
        self.check(key)?;
        self.store.read(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let records = self.store.list(prefix);
        let checked = records.map(|record| {
            let record = record?;
            self.check(&record.key).map(|()| record)
        });
        checked.boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        self.store.create(key, attributes).await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        self.write(&grant.key).await;
        self.store.update(grant, change).await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.store.transfer(grant, to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.store.delete(grant).await
    }
}

const LATENCY: Duration = Duration::from_millis(5);
