//! What a store may do besides: records that carry attributes and can be listed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::error::StoreError;
use crate::key::{LeaseKey, Lessee};
use crate::store::attributes::{Attributes, Change};
use crate::store::grant::{Grant, Holder, Written};
use crate::store::lock_store::LockStore;
use crate::token::FencingToken;

/// Leases on records that carry attributes and can be listed.
///
/// What coordinates many keys needs this: who reads which shard and how far it has come, when a
/// job last ran. Every write under a grant is refused once the grant no longer stands, so
/// progress kept here cannot be overwritten by a former holder; nor by a late request of the
/// holder's own, where the change says what it replaces.
#[async_trait]
pub trait LeaseTable: LockStore {
    /// Reads the record of `key`; `None` where there is none.
    ///
    /// # Errors
    ///
    /// Where the store could not say.
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError>;

    /// Lists every record whose key starts with `prefix`, over all pages, in any order.
    ///
    /// The empty prefix lists everything. An error is an item of the stream, and never looks
    /// like an empty list; after one, the stream may go on or end.
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>>;

    /// Makes a record of `key` with `attributes`, held by nobody, if there is none; says
    /// whether it did.
    ///
    /// A record that is there already is left alone, also one that is there because its key is
    /// leased, or was a moment ago.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError>;

    /// Changes attributes, if `grant` still stands and they are as `change` expects. Does not
    /// extend the lease. The record lasts from then on, also if it was never created.
    ///
    /// # To ensure correctness
    ///
    /// Grant, expectations and writes are one atomic step: what is expected must hold at the
    /// moment of the write. A lost grant is told as lost, whatever the attributes are. Where they
    /// are not as expected, nothing is written, and no record is made to last. A value is as
    /// expected if it equals the [`Value`](crate::Value), type included;
    /// [`Change::expecting`] says what is left to the store.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown: the request may yet be applied. Repeat the same change, with
    /// the same expectations. [`Written::Applied`] and [`Written::Lost`] then say how it is. After
    /// [`Written::Unexpected`], [`read`](Self::read) and compare: what is there may be what the
    /// earlier try has written. So it may without an error, since a service's own client may
    /// repeat a request whose answer was lost.
    ///
    /// # Examples
    ///
    /// A checkpoint that never goes back, whatever becomes of the requests:
    ///
    /// ```
    /// use lease_core::store::{Grant, LeaseTable};
    /// use lease_core::{Change, StoreError, Value, Written};
    ///
    /// /// Whether the checkpoint is `new`, as far as this grant can say.
    /// async fn advance(
    ///     table: &dyn LeaseTable,
    ///     grant: &Grant,
    ///     old: &str,
    ///     new: &str,
    /// ) -> Result<bool, StoreError> {
    ///     let change = Change::new().expecting("checkpoint", old).set("checkpoint", new);
    ///     let mut written = table.update(grant, &change).await;
    ///     if written.as_ref().is_err_and(StoreError::is_retryable) {
    ///         written = table.update(grant, &change).await;
    ///     }
    ///     Ok(match written? {
    ///         Written::Applied => true,
    ///         Written::Lost(_) => false,
    ///         Written::Unexpected => {
    ///             let record = table.read(&grant.key).await?;
    ///             let found = record.and_then(|mut record| record.attributes.remove("checkpoint"));
    ///             found == Some(Value::from(new))
    ///         }
    ///     })
    /// }
    /// ```
    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError>;

    /// Frees the key for `to` alone, if `grant` still stands; for anybody once `reserved` has
    /// passed. Remembers the nonce, and wakes the key's watches.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown. Asked again, it answers [`Written::Lost`] where the earlier
    /// try was applied, as it does where the grant was lost before. Before its ttl has passed,
    /// nobody but its holder frees a key: whoever still holds the lease by its own deadline knows
    /// then that it was transferred.
    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError>;

    /// Removes the record, if `grant` still stands. Its token and nonce are remembered, so that
    /// a later grant of the key still carries a larger one.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError>;

    /// Ends a lease from outside: refuses the heartbeats of the grant with `token` from now on,
    /// and lets it run out. Says whether that grant stood.
    ///
    /// For an operator. The holder learns of it at its next heartbeat, and the key is free at
    /// the latest one ttl later: never before, since the holder may be at work. Its other writes
    /// go through until then.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn evict(&self, key: &LeaseKey, token: FencingToken) -> Result<bool, StoreError>;
}

/// A record: its lease and its attributes.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct LeaseRecord {
    /// The key it is kept under.
    pub key: LeaseKey,
    /// Who holds it now; `None` where nobody does.
    pub holder: Option<Holder>,
    /// The token of the last grant; `None` before the first.
    pub token: Option<FencingToken>,
    /// What else is on it.
    pub attributes: Attributes,
}

impl LeaseRecord {
    /// A record as a store read it.
    pub fn new(
        key: LeaseKey,
        holder: Option<Holder>,
        token: Option<FencingToken>,
        attributes: Attributes,
    ) -> Self {
        Self { key, holder, token, attributes }
    }
}

// A forwarded trait must not fall back to a default by accident.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<T: LeaseTable + ?Sized> LeaseTable for Arc<T> {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        (**self).read(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        (**self).list(prefix)
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        (**self).create(key, attributes).await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        (**self).update(grant, change).await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        (**self).transfer(grant, to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        (**self).delete(grant).await
    }

    async fn evict(&self, key: &LeaseKey, token: FencingToken) -> Result<bool, StoreError> {
        (**self).evict(key, token).await
    }
}
