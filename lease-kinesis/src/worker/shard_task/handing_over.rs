//! Transfers a shard to another worker, which may leave at the same moment.
//!
//! A target that leaves does not claim the row that is reserved for it. The giver reads the target's own row
//! after the transfer. If the target is leaving or gone, the giver frees the reserved row. If the giver reads
//! `live`, the target writes `leaving` later, and lists the reserved rows after that. So the target frees the
//! row.

use std::error::Error;

use lease_core::store::within;
use lease_core::{Attempt, LeaseKey, Lessee, Locker, StoreError, Written};
use tracing::{debug, info};

use super::ShardTask;
use crate::plan::MemberState;
use crate::plan::fleet;
use crate::table::row;

impl ShardTask {
    pub(super) async fn transfer(&self, to: &Lessee) -> Result<Written, StoreError> {
        // `Lease::transfer` would consume the lease, which the task may still need.
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

    /// Frees a shard that was handed over to the worker `to`, which is leaving or has gone.
    pub(super) async fn take_back_from(&self, to: &Lessee) {
        // The reservation admits only the name `to`. The store refuses this claim if `to` has obtained the
        // shard.
        let locker = self.locker.clone().with_lessee(to.clone());
        free(&locker, self.lease.key()).await;
    }
}

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
