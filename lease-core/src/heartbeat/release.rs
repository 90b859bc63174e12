//! The request that ends a lease at the store: a release, a transfer or a delete.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, warn};

use crate::clock::{Moment, sleep_until};
use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::ending::Ending;
use crate::heartbeat::lease_cell::LeaseCell;
use crate::heartbeat::locker_runtime::LockerRuntime;
use crate::key::Lessee;
use crate::lengths::Reservation;
use crate::lost::LossCause;
use crate::metrics::StoreOperation;
use crate::runtime::requests_in_flight::RequestGuard;
use crate::settings::Settings;
use crate::settings::backoff::Pauses;
use crate::store::grant::Written;
use crate::store::lease_table::LeaseTable;

/// How a lease was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a lease is released, or was lost before")]
pub enum Released {
    /// The key is free, or reserved by a transfer or by a release with a reservation.
    Freed,
    /// The lease was lost before the call, or before the store applied a transfer or a deletion.
    ///
    /// A transfer or a deletion was not applied. The caller need not release the key again.
    ///
    /// Another holder may have worked at the same time as the caller. So check the results of the work, or
    /// obtain the key again and repeat the work.
    AlreadyLost(LossCause),
}

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) cell: Arc<LeaseCell>,
    pub(crate) request: GiveBack,
    /// The longest ttl that was sent: the store may hold the key for this time without another heartbeat.
    pub(crate) reach: Duration,
    /// Before this deadline, no other lessee can have obtained the key.
    pub(crate) deadline: Moment,
    pub(crate) _guard: Option<RequestGuard>,
}

#[derive(Debug)]
pub(crate) enum GiveBack {
    Release(Option<Reservation>),
    Transfer(Arc<dyn LeaseTable>, Lessee, Reservation),
    Delete(Arc<dyn LeaseTable>),
}

impl Release {
    pub(crate) async fn send_in_slot(self, slot: OwnedSemaphorePermit, settings: Arc<Settings>) {
        let (clock, period) = (Arc::clone(&settings.clock), settings.options.heartbeat_period());
        let began = clock.now();
        let mut slow = pin!(sleep_until(&*clock, began + period / 16, period));
        let mut sent = pin!(self.send(&settings, began));
        let mut slot = Some(slot);
        loop {
            select! {
                // Polls the answer first: an answered request needs no timer.
                biased;
                _ = &mut sent => return,
                () = &mut slow, if slot.is_some() => slot = None,
            }
        }
    }

    /// Sends the request of a caller. `began` is a reading of the clock after the end of the lease.
    ///
    /// No ttl frees a key under a session. So if the store does not confirm the transfer or the deletion of such
    /// a key, a task releases the key. The caller does not wait for this release, because it may be repeated for
    /// as long as the session lasts.
    pub(crate) async fn send_for_caller(
        self,
        runtime: LockerRuntime,
        settings: Arc<Settings>,
        began: Moment,
    ) -> Result<Released, StoreError> {
        let answer = self.send(&settings, began).await;
        if answer.is_err() && self.is_write() && self.cell.standing().is_some() {
            let release = Self { _guard: Some(runtime.request_guard()), ..self };
            runtime.spawn(async move { drop(release.send_plain(&settings).await) });
        }
        answer
    }

    /// Retries until the store answers, or until the ttl has surely freed the key, or until the session of the
    /// lease has ended.
    async fn send(&self, settings: &Settings, began: Moment) -> Result<Released, StoreError> {
        // A local variable, so that the turn also ends if the store panics.
        let turn = self.cell.take_turn();
        let (cell, grant) = (&self.cell, &self.cell.grant);
        let held = began.since(cell.granted_at);
        let is_given_back = cell.ending() == Some(Ending::Released);
        let answer = self.send_until_answered(&self.request, began, settings).await;
        let is_refused = answer.as_ref().is_err_and(|error| !error.is_retryable());
        if is_refused && self.is_write() && cell.standing().is_none() {
            // This release frees the key before the ttl has passed.
            drop(Box::pin(self.send_plain(settings)).await);
        }
        match answer {
            Ok(Released::AlreadyLost(cause)) => settings.metrics.lost(&grant.key, held, cause),
            _ if is_given_back => settings.metrics.released(&grant.key, held),
            _ => (),
        }
        match &answer {
            Ok(Released::Freed) => debug!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token, "lease released"
            ),
            Ok(Released::AlreadyLost(cause)) => warn!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token, %cause,
                "lease lost before it was transferred or deleted"
            ),
            Err(error) if cell.standing().is_some() => warn!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token,
                error = error as &dyn Error,
                "lease not released: a later release or the end of its session frees the key"
            ),
            Err(error) => warn!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token,
                error = error as &dyn Error,
                within = ?self.reach,
                "lease not released: the key is free again when its ttl has passed"
            ),
        }
        // The next waiter of this locker gets its turn before the caller gets this answer.
        drop(turn);
        answer
    }

    /// Whether the request changes more than the grant: a transfer or a deletion.
    fn is_write(&self) -> bool {
        !matches!(self.request, GiveBack::Release(_))
    }

    async fn send_plain(&self, settings: &Settings) -> Result<Released, StoreError> {
        let began = self.cell.clock().now();
        self.send_until_answered(&GiveBack::Release(None), began, settings).await
    }

    async fn send_until_answered(
        &self,
        request: &GiveBack,
        began: Moment,
        settings: &Settings,
    ) -> Result<Released, StoreError> {
        let (cell, options) = (&self.cell, &settings.options);
        let clock = cell.clock();
        let until = began + self.reach;
        let mut pauses = Pauses::new(options, &settings.random);
        let mut may_be_applied = false;
        loop {
            // The key was granted to another claim: a release would change nothing.
            if cell.ending() == Some(Ending::Lost(LossCause::Superseded)) {
                return Ok(Released::Freed);
            }
            let asking = self.ask(request, settings);
            let answer = settings.ask(StoreOperation::Release, asking).await;
            let error = match answer {
                Ok(None) => return Ok(Released::Freed),
                // Before the deadline, only this holder can free the key. So an earlier attempt was
                // applied.
                Ok(Some(_)) if may_be_applied && clock.now() < self.deadline => {
                    return Ok(Released::Freed);
                }
                Ok(Some(cause)) => return Ok(Released::AlreadyLost(cause)),
                Err(error) => error,
            };
            may_be_applied = true;
            let pause = pauses.next();
            let is_over = match cell.standing() {
                // No ttl frees a key under a session. Only the end of the session frees the key.
                Some(standing) if matches!(request, GiveBack::Release(_)) => {
                    standing.session.ending().is_some()
                }
                _ => !error.is_retryable() || clock.now() + pause >= until,
            };
            if is_over {
                return Err(error);
            }
            sleep_until(clock, clock.now() + pause, options.heartbeat_period()).await;
        }
    }

    async fn ask(
        &self,
        request: &GiveBack,
        settings: &Settings,
    ) -> Result<Option<LossCause>, StoreError> {
        let grant = &self.cell.grant;
        let written = match request {
            GiveBack::Release(reserved) => {
                settings.store.release(grant, reserved.map(Reservation::get)).await?;
                return Ok(None);
            }
            GiveBack::Transfer(table, to, reserved) => {
                table.transfer(grant, to, reserved.get()).await?
            }
            GiveBack::Delete(table) => table.delete(grant).await?,
        };
        match written {
            Written::Applied => Ok(None),
            Written::Lost(cause) => Ok(Some(cause)),
            Written::Unexpected => Err(StoreError::new(
                StoreErrorKind::Corrupt,
                "the store expects attributes in a request that names none",
            )),
        }
    }
}
