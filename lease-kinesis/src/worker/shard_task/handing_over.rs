//! Transfers a shard to another worker, which may leave at the same moment.
//!
//! A transfer reserves the row for its target. A target that leaves does not claim the row. Then a worker has
//! to free the row. In each order of events, the giver or the target frees it:
//!
//! - The giver reads the target's own row after the transfer. If the target leaves, or has gone, the
//!   giver frees the shard.
//! - Otherwise, the target's row said `live` after the transfer. A leaving worker writes `leaving` before
//!   it lists the rows that are reserved for it. So its list includes this row, and the target frees the shard.

use std::error::Error;

use lease_core::store::within;
use lease_core::{Attempt, LeaseKey, Lessee, Locker, StoreError, Written};
use tracing::{debug, info};

use super::ShardTask;
use crate::plan::MemberState;
use crate::plan::fleet;
use crate::table::row;

impl ShardTask {
    /// Hands the shard over to `to`.
    pub(super) async fn transfer(&self, to: &Lessee) -> Result<Written, StoreError> {
        // Uses the grant, because `Lease::transfer` consumes the lease. The task still needs the lease: it
        // may have to transfer it to another worker, or derive from its end that the transfer succeeded.
        let (table, grant) = (&self.settings.table, self.lease.grant());
        let limit = self.settings.options.request_timeout();
        // A leaving target finds the row by this attribute.
        let change = row::reserved_for(to);
        match within(limit, table.update(grant, &change)).await? {
            Written::Applied => (),
            lost => return Ok(lost),
        }
        within(limit, table.transfer(grant, to, self.settings.reserved())).await
    }

    /// Reads the row of the worker `to`, and reports whether this worker is leaving or has gone.
    pub(super) async fn is_leaving(&self, to: &Lessee) -> bool {
        let settings = &self.settings;
        let Ok(key) = settings.application.worker(to) else { return false };
        match within(settings.options.request_timeout(), settings.table.read(&key)).await {
            Ok(record) => {
                let member = record.as_ref().and_then(fleet::member);
                member.is_none_or(|member| member.state == MemberState::Leaving)
            }
            Err(cause) => {
                debug!(%key, error = &cause as &dyn Error, "worker's own row not read");
                false
            }
        }
    }

    /// Frees a shard that was handed over to the worker `to`. That worker is leaving or has gone.
    pub(super) async fn take_back_from(&self, to: &Lessee) {
        // The reservation admits only the name `to`, so the claim uses it. If `to` has obtained the shard,
        // the store refuses this claim.
        let locker = self.locker.clone().with_lessee(to.clone());
        free(&locker, self.lease.key()).await;
    }
}

/// Frees `key` if it is reserved for the locker's lessee.
pub(crate) async fn free(locker: &Locker, key: &LeaseKey) {
    let freed = match locker.obtain(key).await {
        Ok(Attempt::Obtained(lease)) => lease.release().await.map(drop),
        Ok(Attempt::Held(_)) => return,
        Err(cause) => Err(cause),
    };
    match freed {
        Ok(()) => info!(%key, lessee = %locker.lessee(), "reservation for a leaving worker freed"),
        Err(cause) => {
            let error = &cause as &dyn Error;
            debug!(%key, lessee = %locker.lessee(), error, "reservation not freed, it expires");
        }
    }
}
