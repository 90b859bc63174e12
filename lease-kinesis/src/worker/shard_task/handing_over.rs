//! How a shard goes to another worker, which may leave at the same moment.
//!
//! A transfer reserves the row for its target. A target that leaves does not claim it, so somebody has
//! to free it. Whatever the order of events, one of the two workers does:
//!
//! - The giver reads the target's own row after the transfer. If the target leaves, or has gone, the
//!   giver frees the shard.
//! - Otherwise the target's row said `live` after the transfer. A leaving worker writes `leaving` before
//!   it lists the rows that are reserved for it, so its list has this one, and it frees the shard.

use std::error::Error;
use std::future::Future;

use lease_core::{Attempt, LeaseKey, Lessee, StoreError, StoreErrorKind, Written};
use tokio::time::timeout;
use tracing::{debug, info};

use super::ShardTask;
use crate::fleet;
use crate::plan::Standing;
use crate::row;

impl ShardTask {
    /// Hands the shard over to `to`.
    pub(super) async fn transfer(&self, to: &Lessee) -> Result<Written, StoreError> {
        let (table, grant) = (&self.settings.table, self.lease.grant());
        // By this, a target that leaves finds the row.
        let change = row::reserved_for(to);
        match self.in_time(table.update(grant, &change)).await? {
            Written::Applied => (),
            lost => return Ok(lost),
        }
        self.in_time(table.transfer(grant, to, self.settings.reserved())).await
    }

    /// Whether `to` leaves or has gone, as far as its own row tells.
    pub(super) async fn is_leaving(&self, to: &Lessee) -> bool {
        let settings = &self.settings;
        let Ok(key) = settings.application.worker(to) else { return false };
        match self.in_time(settings.table.read(&key)).await {
            Ok(record) => {
                let member = record.as_ref().and_then(fleet::member);
                member.is_none_or(|member| member.standing == Standing::Leaving)
            }
            Err(cause) => {
                debug!(%key, error = &cause as &dyn Error, "worker's own row not read");
                false
            }
        }
    }

    /// Frees a shard that was handed over to `to` and that `to` will not read.
    pub(super) async fn take_back_from(&self, to: &Lessee) {
        // The reservation is for this name alone. If the worker of this name has the shard after all,
        // the claim is refused.
        let locker = self.locker.clone().with_lessee(to.clone());
        free(&locker, self.lease.key()).await;
    }

    async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = timeout(self.settings.options.request_timeout(), request).await;
        let too_late = |_elapsed| StoreError::new(StoreErrorKind::Unavailable, "no answer in time");
        answer.map_err(too_late)?
    }
}

/// Frees `key` if it is reserved for the locker's lessee.
pub(crate) async fn free(locker: &lease_core::Locker, key: &LeaseKey) {
    let freed = match locker.obtain(key).await {
        Ok(Attempt::Obtained(lease)) => lease.release().await.map(drop),
        Ok(Attempt::Held(_)) => return,
        Err(cause) => Err(cause),
    };
    match freed {
        Ok(()) => info!(%key, lessee = %locker.lessee(), "reservation for a leaving worker freed"),
        Err(cause) => {
            let error = &cause as &dyn Error;
            debug!(%key, lessee = %locker.lessee(), error, "reservation not freed, it runs out");
        }
    }
}
