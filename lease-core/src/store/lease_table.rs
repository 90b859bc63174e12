//! The trait of a lease table: a store whose records have attributes and can be listed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::error::StoreError;
use crate::key::{LeaseKey, Lessee};
use crate::store::attributes::{Attributes, Change};
use crate::store::grant::{Grant, HeldKey, Holder, Written};
use crate::store::lock_store::LockStore;
use crate::token::FencingToken;

/// Stores leases on records that have attributes and can be listed.
///
/// Use a table to coordinate many keys, such as the checkpoint of each shard, or the last run of each job.
/// A table refuses every write under a grant that has ended, so a former holder cannot overwrite progress.
#[async_trait]
pub trait LeaseTable: LockStore {
    /// Reads the record of `key`; `None` if the key has no record.
    ///
    /// # Errors
    ///
    /// If the record could not be read.
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError>;

    /// Lists every record whose key starts with `prefix`, over all pages, in any order.
    ///
    /// An error is an item of the stream, so a failed list never looks empty. After an error, the
    /// stream may continue or end.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_util::TryStreamExt; // of the crate `futures-util`
    /// use lease_core::StoreError;
    /// use lease_core::store::{LeaseRecord, LeaseTable};
    ///
    /// async fn shards(table: &impl LeaseTable) -> Result<Vec<LeaseRecord>, StoreError> {
    ///     table.list("shard-").try_collect().await
    /// }
    /// ```
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>>;

    /// Creates a record of `key` with `attributes` and without a holder, if the key has no record. Returns
    /// whether a record was created.
    ///
    /// An existing record is not changed. A record may also exist because its key is or was leased.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError>;

    /// Changes attributes, if `grant` is still the current grant and all expected values match. Does not
    /// extend the lease. A changed record outlasts the lease, even without [`create`](Self::create).
    ///
    /// # To ensure correctness
    ///
    /// The check of the grant, the comparisons and the writes are one atomic step. Under a lost grant,
    /// return `Lost`, even if a value does not match. If a value does not match, write nothing, and do not
    /// make the record outlast the lease. A value matches if it equals the [`Value`](crate::Value) and its
    /// type.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown: the request may still be applied. Repeat the same change, with the same
    /// expected values. [`Written::Applied`] and [`Written::Lost`] are then certain. After
    /// [`Written::Unexpected`], [`read`](Self::read) the record and compare, because the earlier request
    /// may have written the new values. A service's own client may also repeat a request, without an error.
    ///
    /// # Examples
    ///
    /// A checkpoint that never decreases, even if requests are lost, late or duplicated:
    ///
    /// ```
    /// use lease_core::store::{Grant, LeaseTable};
    /// use lease_core::{Change, StoreError, Value, Written};
    ///
    /// /// Returns whether the checkpoint was `new` under this grant.
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

    /// Ends `grant`, if it is still current, and reserves the key for `to`. After `reserved`, any
    /// lessee may obtain the key. The store keeps the nonce, and wakes the key's watches.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown. A repetition returns [`Written::Lost`] if the earlier request was
    /// applied, and also if the grant was lost before. Before the deadline, only the holder can free the
    /// key, so a `Lost` before the holder's deadline means that the transfer was applied.
    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError>;

    /// Deletes the record, if `grant` is still the current grant. Keeps the token and the nonce, so
    /// that a later grant has a larger token.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError>;
}

/// A record: its lease and its attributes.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct LeaseRecord {
    /// The key of the record.
    pub key: LeaseKey,
    /// The current holder, if any.
    pub holder: Option<Holder>,
    /// The token of the last grant; `None` before the first grant.
    pub token: Option<FencingToken>,
    /// The attributes of the record.
    pub attributes: Attributes,
    /// Whether the last grant has ended. Only stores with [sessions](crate::store::Sessions) report this.
    pub last_grant: LastGrant,
    /// The reservation of the key. Only stores with [sessions](crate::store::Sessions) report it.
    pub reserved: Option<Reserved>,
}

/// Whether the last grant of a key has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "an end is written or not")]
pub enum LastGrant {
    /// No end is written: the key is held, or its lease has expired, or the store does not report ends.
    #[default]
    Open,
    /// The grant was released, transferred or handed over, or its end was written. This is irrevocable.
    Ended,
}

/// The reservation of a key that has no holder.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reserved {
    /// The only lessee that can obtain the key; `None` if no lessee can.
    pub only: Option<Lessee>,
    /// The time until the reservation has passed.
    pub expires_in: Duration,
}

impl Reserved {
    /// A reservation that passes after `expires_in`, for stores.
    pub fn new(only: Option<Lessee>, expires_in: Duration) -> Self {
        Self { only, expires_in }
    }
}

impl LeaseRecord {
    /// Makes a record, for stores.
    pub fn new(
        key: LeaseKey,
        holder: Option<Holder>,
        token: Option<FencingToken>,
        attributes: Attributes,
    ) -> Self {
        let (last_grant, reserved) = (LastGrant::Open, None);
        Self { key, holder, token, attributes, last_grant, reserved }
    }

    /// Returns the same record, with the end of its last grant and its reservation.
    #[must_use]
    pub fn with_end(self, last_grant: LastGrant, reserved: Option<Reserved>) -> Self {
        Self { last_grant, reserved, ..self }
    }

    /// Returns the key and its holder, if any, for a [scan](crate::store::LockStore::scan).
    pub fn into_held(self) -> Option<HeldKey> {
        Some(HeldKey::new(self.key, self.holder?))
    }
}

// All methods must be forwarded: a default method would hide the method of the inner store.
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
}
