//! Reads and writes control records, each write under the lease of its record.

use lease_core::store::within;
use lease_core::{Attempt, Attributes, Change, FencingToken, LeaseKey, StoreError, Written};

use crate::control::record::{ControlRecord, control_key, read_pause};
use crate::control::{JobControl, MOST_TRIES, refused};

impl JobControl {
    /// Reads the trigger and the answers of the job `name`.
    pub(crate) async fn read(&self, name: &LeaseKey) -> Result<ControlRecord, StoreError> {
        Ok(ControlRecord::read(&self.attributes(name).await?))
    }

    /// Whether the job `name` is paused.
    pub(crate) async fn is_paused(&self, name: &LeaseKey) -> Result<bool, StoreError> {
        Ok(read_pause(&self.attributes(name).await?)?.is_some())
    }

    /// Reads the attributes of the control record of the job `name`.
    async fn attributes(&self, name: &LeaseKey) -> Result<Attributes, StoreError> {
        let key = control_key(name).map_err(refused)?;
        let record = self.within(self.table.read(&key)).await?;
        Ok(record.map(|record| record.attributes).unwrap_or_default())
    }

    /// Applies the change that `decide` returns for the control record of the job `name`, under its lease. Waits
    /// for the lease. Decides again if the outcome of a write is unknown.
    pub(super) async fn write<T>(
        &self,
        name: &LeaseKey,
        mut decide: impl FnMut(&ControlRecord, FencingToken) -> (Option<Change>, T),
    ) -> Result<T, StoreError> {
        let key = control_key(name).map_err(refused)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let lease = self.writer.wait_until_obtained(&key).await?;
            let (change, answer) = decide(&ControlRecord::read(lease.attributes()), lease.token());
            let Some(change) = change else {
                drop(lease.release().await);
                return Ok(answer);
            };
            let written = lease.update(&*self.table, &change).await;
            // Releases before the next attempt, so that the table refuses a late duplicate of this update.
            let released = lease.release().await;
            match written {
                Ok(Written::Applied) => return Ok(answer),
                // The lease was lost, or the record has the change already. The next attempt finds out.
                Ok(Written::Lost(_) | Written::Unexpected) => (),
                Err(error) if tries < MOST_TRIES && error.is_retryable() => drop(released),
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`write`](Self::write), with one attempt, for schedulers: they repeat it at their next read. Returns whether
    /// the change is applied.
    pub(crate) async fn try_write(
        &self,
        name: &LeaseKey,
        decide: impl FnOnce(&ControlRecord) -> Option<Change>,
    ) -> Result<bool, StoreError> {
        let key = control_key(name).map_err(refused)?;
        let Attempt::Obtained(lease) = self.writer.obtain(&key).await? else { return Ok(false) };
        let written = match decide(&ControlRecord::read(lease.attributes())) {
            Some(change) => lease.update(&*self.table, &change).await.map(Some),
            None => Ok(None),
        };
        drop(lease.release().await);
        Ok(written? == Some(Written::Applied))
    }

    pub(super) async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        within(self.locker.options().request_timeout(), answer).await
    }
}
