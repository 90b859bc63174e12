//! A table that drops the marks of ticks, for the control.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, LeaseRecord, LeaseTable, LockStore, Obtained,
};
use lease_core::{Attributes, Change, GrantId, Holder, LeaseKey, Lessee, StoreError, Written};

#[derive(Debug, Clone)]
pub(crate) struct Forgetful<S>(pub(crate) Arc<S>);

fn forget(attributes: &mut Attributes) {
    for name in ["job_tick", "job_attempt"] {
        attributes.remove(name);
    }
}

#[async_trait]
impl<S: LockStore> LockStore for Forgetful<S> {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let mut obtained = self.0.obtain(claim).await?;
        if let Obtained::Granted(_, attributes) = &mut obtained {
            forget(attributes);
        }
        Ok(obtained)
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

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.0.evict(key, grant).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.0.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.0.watch(key).await
    }
}

#[async_trait]
impl<S: LeaseTable> LeaseTable for Forgetful<S> {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let mut record = self.0.read(key).await?;
        if let Some(record) = &mut record {
            forget(&mut record.attributes);
        }
        Ok(record)
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        self.0.list(prefix)
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        self.0.create(key, attributes).await
    }

    /// Omits the expectations, since the store did not return the expected mark.
    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let assigned = change
            .assigned()
            .fold(Change::new(), |all, (name, value)| all.set(name, value.clone()));
        let change = change.removed().fold(assigned, Change::remove);
        self.0.update(grant, &change).await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.0.transfer(grant, to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.0.delete(grant).await
    }
}
