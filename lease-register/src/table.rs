//! The table: attributes, listing, and writes under a grant.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::ready;
use lease_core::store::{BoxStream, Grant, LeaseRecord, LeaseTable};
use lease_core::{Attributes, Change, LeaseKey, Lessee, StoreError, Written};

use crate::decision::{Step, current};
use crate::record::{Record, Reservation};
use crate::register::{Register, Versioned};
use crate::store::RegisterStore;

#[async_trait]
impl<R: Register> LeaseTable for RegisterStore<R> {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let read = self.read_record(key).await?;
        Ok(read.and_then(|versioned| self.to_lease_record(key.clone(), versioned)))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let listed = self.shared.register.list(prefix).map(|listed| {
            listed.map(|(key, versioned)| self.to_lease_record(key, versioned)).transpose()
        });
        listed.filter_map(ready).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        self.request(key, |seen| {
            if seen.is_some_and(|seen| seen.record.exists) {
                return Ok(Step::Answer(false));
            }
            let before = self.changed(seen.map(|seen| seen.record));
            let created = Record { exists: true, attributes: attributes.clone(), ..before };
            Ok(Step::Write(created, true))
        })
        .await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        self.request(&grant.key, |seen| {
            let record = match current(grant, seen)? {
                Ok((seen, _)) => seen.record,
                Err(cause) => return Ok(Step::Answer(Written::Lost(cause))),
            };
            if !change.fits(&record.attributes) {
                return Ok(Step::Answer(Written::Unexpected));
            }
            let mut record = self.changed(Some(record));
            change.apply(&mut record.attributes);
            record.exists = true;
            Ok(Step::Write(record, Written::Applied))
        })
        .await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.request(&grant.key, |seen| {
            self.decide_end(grant, seen, |record| {
                let (only, until) = (Some(to.clone()), self.after(reserved));
                record.reserved = Some(Reservation { only, length: reserved, until });
            })
        })
        .await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.request(&grant.key, |seen| {
            self.decide_end(grant, seen, |record| {
                record.attributes.clear();
                record.exists = false;
            })
        })
        .await
    }
}

impl<R: Register> RegisterStore<R> {
    /// Returns the record for users; `None` if it was deleted, or if no one has created it.
    fn to_lease_record(&self, key: LeaseKey, versioned: Versioned) -> Option<LeaseRecord> {
        if !versioned.record.exists {
            return None;
        }
        let holder = versioned.record.holder(self.state(&key, &versioned.record));
        let token = versioned.record.token();
        Some(LeaseRecord::new(key, holder, token, versioned.record.attributes))
    }
}
