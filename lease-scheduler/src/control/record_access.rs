//! Reads and writes control records, each write under the lease of its record.

use lease_core::store::within;
use lease_core::{Attempt, Change, FencingToken, LeaseKey, StoreError, Written};

use crate::control::record::{ControlRecord, control_key};
use crate::control::{JobControl, MOST_TRIES, refused};

impl JobControl {
    /// Reads the control record of the job `name`.
    pub(crate) async fn read(&self, name: &LeaseKey) -> Result<ControlRecord, StoreError> {
        let key = control_key(name).map_err(refused)?;
        match self.within(self.table.read(&key)).await? {
            Some(record) => ControlRecord::read(&record.attributes),
            None => Ok(ControlRecord::default()),
        }
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
            let (change, answer) = match ControlRecord::read(lease.attributes()) {
                Ok(record) => decide(&record, lease.token()),
                Err(error) => {
                    drop(lease.release().await);
                    return Err(error);
                }
            };
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
        let change = ControlRecord::read(lease.attributes()).map(|record| decide(&record));
        let written = match change {
            Ok(Some(change)) => lease.update(&*self.table, &change).await.map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
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
