//! The record operations of the store.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::store::{Grant, LeaseRecord, LeaseTable};
use lease_core::{Attributes, Change, LeaseKey, Lessee, StoreError, Written};

use crate::attributes;
use crate::requests::ChangeRequest;
use crate::row::Row;
use crate::store::{SqliteStore, unwritable};
use crate::threads::queue::Urgency;

#[async_trait]
impl LeaseTable for SqliteStore {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let key = key.clone();
        self.read_by(move |database| match database.row(&key)? {
            Some(row) => row.to_lease_record(),
            None => Ok(None),
        })
        .await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        self.rows(prefix, Row::to_lease_record)
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let attributes = attributes::write(attributes).ok_or_else(unwritable)?;
        let key = key.clone();
        self.write(Urgency::Normal, move |database| database.create(&key, &attributes)).await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let request = ChangeRequest {
            patch: attributes::write_patch(change).ok_or_else(unwritable)?,
            expected: attributes::write_expected(change).ok_or_else(unwritable)?,
        };
        let grant = grant.clone();
        self.write(Urgency::Normal, move |database| database.update(&grant, &request)).await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        let (grant, to) = (grant.clone(), to.clone());
        self.write(Urgency::Urgent, move |database| database.reserve(&grant, reserved, Some(&to)))
            .await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        let grant = grant.clone();
        self.write(Urgency::Normal, move |database| database.delete(&grant)).await
    }
}
