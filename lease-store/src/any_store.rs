//! A store of any kind.

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{
    Beat, BoxStream, Claim, Freed, Grant, Heartbeat, HeldKey, InTurn, LeaseTable, LockStore,
    Obtained, Sessions, async_trait,
};
use lease_core::{GrantId, Holder, LeaseKey, StoreError};

/// A store that was opened by its URL.
///
/// # Examples
///
/// ```
/// use lease_core::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = lease_store::connect("memory:").await?;
/// assert!(store.table().is_some(), "memory keeps records");
/// let locker = Locker::new(store);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AnyStore {
    store: Arc<dyn LockStore>,
    table: Option<Arc<dyn LeaseTable>>,
}

impl AnyStore {
    #[cfg(feature = "redis")]
    pub(crate) fn of_locks(store: impl LockStore) -> Self {
        Self { store: Arc::new(store), table: None }
    }

    #[cfg(any(
        feature = "memory",
        feature = "sqlite",
        feature = "redis",
        feature = "dynamodb",
        feature = "postgres",
        feature = "etcd",
        feature = "kubernetes"
    ))]
    pub(crate) fn of_table(store: impl LeaseTable + Clone) -> Self {
        Self { store: Arc::new(store.clone()), table: Some(Arc::new(store)) }
    }

    /// Returns the store as a table. `None` for a quorum of Redis servers, which keeps leases only.
    pub fn table(&self) -> Option<Arc<dyn LeaseTable>> {
        self.table.clone()
    }
}

// Each method must be forwarded: a default would replace the store's own method.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockStore for AnyStore {
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

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        self.store.heartbeat_all(beats)
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.store.evict(key, grant).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.store.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        self.store.in_turn()
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        self.store.sessions()
    }

    fn grain(&self) -> Duration {
        self.store.grain()
    }
}
