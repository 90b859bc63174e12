//! Records behind a bad network.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};

use crate::conformance::kit::faulty::{Call, Faulty};
use crate::error::StoreError;
use crate::key::{LeaseKey, Lessee};
use crate::store::attributes::{Attributes, Change};
use crate::store::grant::{Grant, Written};
use crate::store::lease_table::{LeaseRecord, LeaseTable};

#[async_trait]
impl<S: LeaseTable> LeaseTable for Faulty<S> {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let key = key.clone();
        self.call(Call::Read, move |store| {
            let key = key.clone();
            async move { store.read(&key).await }
        })
        .await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        self.list_in_halves(prefix, |store, prefix| {
            async move { store.list(&prefix).collect().await }.boxed()
        })
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let asked = (key.clone(), attributes.clone());
        self.call(Call::Write, move |store| {
            let (key, attributes) = asked.clone();
            async move { store.create(&key, &attributes).await }
        })
        .await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let asked = (grant.clone(), change.clone());
        self.call(Call::Write, move |store| {
            let (grant, change) = asked.clone();
            async move { store.update(&grant, &change).await }
        })
        .await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        let asked = (grant.clone(), to.clone());
        self.call(Call::Write, move |store| {
            let (grant, to) = asked.clone();
            async move { store.transfer(&grant, &to, reserved).await }
        })
        .await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        let grant = grant.clone();
        self.call(Call::Write, move |store| {
            let grant = grant.clone();
            async move { store.delete(&grant).await }
        })
        .await
    }
}
