//! A table that drops attributes, and reports no changes. Controls use it to show that an attribute prevents second
//! starts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, LeaseRecord, LeaseTable, LockStore, Obtained,
};
use lease_core::{Attributes, Change, GrantId, Holder, LeaseKey, Lessee, StoreError, Written};

/// Forwards requests to a store, and removes attributes from its answers.
#[derive(Debug, Clone)]
pub(crate) struct Forgetful<S> {
    pub(crate) store: Arc<S>,
    /// The names of these attributes.
    pub(crate) forgets: &'static [&'static str],
}

/// The attributes that prevent the second start of a tick.
pub(crate) const MARKS_OF_TICKS: &[&str] = &["job_tick", "job_attempt"];

/// The attributes that prevent the second start of a trigger.
pub(crate) const MARKS_OF_TRIGGERS: &[&str] = &["job_trigger", "job_trigger_attempt"];

impl<S> Forgetful<S> {
    fn forget(&self, attributes: &mut Attributes) {
        for name in self.forgets {
            attributes.remove(*name);
        }
    }
}

#[async_trait]
impl<S: LockStore> LockStore for Forgetful<S> {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let mut obtained = self.store.obtain(claim).await?;
        if let Obtained::Granted(_, attributes) = &mut obtained {
            self.forget(attributes);
        }
        Ok(obtained)
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

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.store.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let _ = key;
        Ok(Freed::never())
    }
}

#[async_trait]
impl<S: LeaseTable> LeaseTable for Forgetful<S> {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let mut record = self.store.read(key).await?;
        if let Some(record) = &mut record {
            self.forget(&mut record.attributes);
        }
        Ok(record)
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        self.store.list(prefix)
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        self.store.create(key, attributes).await
    }

    /// Applies the change without its expectations of forgotten attributes: their values were not returned.
    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let assigned = change
            .assigned()
            .fold(Change::new(), |all, (name, value)| all.set(name, value.clone()));
        let change_without = change.removed().fold(assigned, Change::remove);
        let kept = change.expected().filter(|(name, _)| !self.forgets.contains(name));
        let change = kept.fold(change_without, |all, (name, value)| match value {
            Some(value) => all.expecting(name, value.clone()),
            None => all.expecting_none(name),
        });
        self.store.update(grant, &change).await
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
