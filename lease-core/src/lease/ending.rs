//! The calls that end a lease: release, hand over, transfer, delete, abandon.

use std::sync::Arc;

use tracing::warn;

use crate::clock::{Moment, sleep_until};
use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::command_queue::Command;
use crate::heartbeat::ending::Ending;
use crate::heartbeat::release::{GiveBack, Release, Released};
use crate::key::Lessee;
use crate::lease::Lease;
use crate::lease::hand_over::HandOver;
use crate::lengths::{Reservation, Ttl};
use crate::lost::LossCause;
use crate::metrics::StoreOperation;
use crate::settings::backoff::Pauses;
use crate::store::grant::Heartbeat;
use crate::store::lease_table::LeaseTable;

/// The result of a hand-over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a hand-over that no process resumes keeps the key until its ttl has passed"]
#[expect(clippy::exhaustive_enums, reason = "a lease is handed over, or was lost before")]
pub enum Handed {
    /// The key is reserved for the process that resumes this hand-over.
    Over(HandOver),
    /// The lease was lost before the hand-over.
    AlreadyLost(LossCause),
}

impl Lease {
    /// Releases the key.
    ///
    /// The lease is no longer held from the first poll on. If the store does not answer, the
    /// request is repeated until the store answers, or until the ttl has passed. Under a session, the request is
    /// repeated until the store answers, or until the session has ended.
    ///
    /// A caller on the locker's runtime sends the request itself. If the caller keeps the future
    /// without polling it, the ttl frees the key.
    ///
    /// For other callers, a task on the locker's runtime sends the request, as in
    /// [`Locker::close`](crate::Locker::close).
    ///
    /// # Errors
    ///
    /// If the store did not confirm the release. The key is free when its ttl has passed, or when its session has
    /// ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: a task still releases the key.
    pub async fn release(self) -> Result<Released, StoreError> {
        self.give_back(GiveBack::Release(None)).await
    }

    /// Releases the key, but reserves the key for `reserved`: no lessee can obtain the key meanwhile. Use
    /// this for work that must not run again soon.
    ///
    /// # Errors
    ///
    /// As for [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Safe: a task still releases the key.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use lease_core::{Attempt, Locker, Reservation};
    /// use lease_memory::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = Locker::new(MemoryStore::new());
    /// let key = "hourly-report".parse()?;
    /// let lease = locker.wait_until_obtained(&key).await?;
    ///
    /// lease.release_reserved(Reservation::new(Duration::from_secs(3600))?).await?;
    ///
    /// assert!(matches!(locker.obtain(&key).await?, Attempt::Held(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release_reserved(self, reserved: Reservation) -> Result<Released, StoreError> {
        self.give_back(GiveBack::Release(Some(reserved))).await
    }

    /// Releases the key for the lessee `to` alone. Once `reserved` has passed, any lessee can obtain it.
    ///
    /// Pass the table of the locker. The lease is no longer held from the first poll on, and its
    /// work is cancelled. If the table does not answer, the request is repeated until the table
    /// answers, or until the ttl has passed.
    ///
    /// # Errors
    ///
    /// If the store did not confirm the transfer. If the store applied the transfer, any lessee can
    /// obtain the key after `reserved`, otherwise after the ttl. If the lease is under a session, a task then
    /// releases the key, and repeats the release until the store answers, or until the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: a task still transfers the key.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use lease_core::{Attempt, Lessee, Locker, Reservation};
    /// use lease_memory::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let (key, next) = ("shard-7".parse()?, Lessee::new("worker-2")?);
    /// let lease = Locker::new(store.clone()).wait_until_obtained(&key).await?;
    ///
    /// lease.transfer(store.clone(), &next, Reservation::new(Duration::from_secs(30))?).await?;
    ///
    /// assert!(matches!(Locker::new(store.clone()).obtain(&key).await?, Attempt::Held(_)));
    /// let worker_2 = Locker::new(store).with_lessee(next);
    /// assert!(matches!(worker_2.obtain(&key).await?, Attempt::Obtained(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn transfer(
        self,
        table: impl LeaseTable,
        to: &Lessee,
        reserved: Reservation,
    ) -> Result<Released, StoreError> {
        self.give_back(GiveBack::Transfer(Arc::new(table), to.clone(), reserved)).await
    }

    /// Deletes the record of the key, which frees the key. The next grant has a larger token.
    ///
    /// Pass the table of the locker. The lease is no longer held from the first poll on, and its
    /// work is cancelled. If the table does not answer, the request is repeated until the table
    /// answers, or until the ttl has passed.
    ///
    /// # Errors
    ///
    /// If the store did not confirm the deletion. The key is free when its ttl has passed. If the lease is under
    /// a session, a task then releases the key, and repeats the release until the store answers, or until the
    /// session has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: a task still deletes the record.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_core::Locker;
    /// use lease_core::store::LeaseTable;
    /// use lease_memory::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let key = "finished-shard".parse()?;
    /// let lease = Locker::new(store.clone()).wait_until_obtained(&key).await?;
    ///
    /// lease.delete(store.clone()).await?;
    ///
    /// assert_eq!(store.read(&key).await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete(self, table: impl LeaseTable) -> Result<Released, StoreError> {
        self.give_back(GiveBack::Delete(Arc::new(table))).await
    }

    async fn give_back(mut self, request: GiveBack) -> Result<Released, StoreError> {
        self.given_away = true;
        let deadline = self.cell.deadline().unwrap_or(self.cell.granted_at);
        let now = self.settings.clock.now();
        if let Ending::Lost(cause) = self.cell.end_at(Ending::Released, now) {
            if cause == LossCause::SessionEnded {
                return Ok(Released::AlreadyLost(cause));
            }
            let mut release = self.release_request(request, deadline);
            if !matches!(release.request, GiveBack::Release(_)) {
                release.request = GiveBack::Release(None);
            }
            self.runtime.send(Command::Release(release));
            return Ok(Released::AlreadyLost(cause));
        }
        self.runtime.send(Command::Remove(Arc::clone(&self.cell)));
        let cell = Arc::clone(&self.cell);
        let release = Release { cell, request, reach: self.reach, deadline, _guard: None };
        // In a box, because its state is large and would move several times.
        let (runtime, settings) = (self.runtime.clone(), Arc::clone(&self.settings));
        let sent = Box::pin(release.send_for_caller(runtime, settings, now));
        self.runtime.run_to_end(sent).await
    }

    /// The caller reads `deadline` from the cell before the lease ends.
    fn release_request(&self, request: GiveBack, deadline: Moment) -> Release {
        let (cell, guard) = (Arc::clone(&self.cell), self.runtime.request_guard());
        Release { cell, request, reach: self.reach, deadline, _guard: Some(guard) }
    }

    /// Hands the key over to another process, which must [`resume`](crate::Locker::resume) the hand-over within
    /// `wait`.
    ///
    /// The lease is no longer held from the first poll on, and its work is cancelled, so the other
    /// process may begin at once. The last heartbeat extends the lease by `wait`. No lessee can
    /// obtain the key before `wait` has passed.
    ///
    /// # Errors
    ///
    /// If the store did not answer while the lease lasted. The key is then released.
    ///
    /// # Cancel safety
    ///
    /// Safe: a task releases the key.
    pub async fn hand_over(self, wait: Ttl) -> Result<Handed, StoreError> {
        let runtime = self.runtime.clone();
        // If the caller drops this call, the answer is dropped, and the lease in the answer is released.
        let (mut lease, handed) = runtime.run_in_task(self.last_heartbeat(wait)).await?;
        lease.given_away |= matches!(handed, Handed::Over(_));
        drop(lease.cell.take_turn());
        Ok(handed)
    }

    async fn last_heartbeat(mut self, wait: Ttl) -> Result<(Self, Handed), StoreError> {
        let _guard = self.runtime.request_guard();
        let settings = Arc::clone(&self.settings);
        let (clock, options) = (&*settings.clock, &settings.options);
        let wait = wait.get();
        let mut grant = self.grant().clone();
        grant.ttl = wait;
        // The heartbeat takes the lease out of its session.
        grant.parent = None;
        let until = self.cell.deadline().unwrap_or_else(|| clock.now());
        // Takes the number first, so that no heartbeat follows this heartbeat. Then ends the lease,
        // so that the work has stopped before another process can resume the lease.
        let mut beat = self.cell.last_beat();
        if let Ending::Lost(cause) = self.cell.end(Ending::Released) {
            return Ok((self, Handed::AlreadyLost(cause)));
        }
        self.reach = self.reach.max(wait);

        let mut pauses = Pauses::new(options, &settings.random);
        loop {
            let sent = clock.now();
            let limit = options.request_timeout().min(until.since(sent));
            let error = match settings
                .ask_within(
                    limit,
                    StoreOperation::Heartbeat,
                    settings.store.heartbeat(&grant, beat),
                )
                .await
            {
                Ok(Heartbeat::Extended) if clock.now() < sent + settings.trusted(wait) => {
                    settings.metrics.released(&grant.key, clock.now().since(self.cell.granted_at));
                    return Ok((self, Handed::Over(HandOver::new(grant))));
                }
                Ok(Heartbeat::Extended) => return Ok(self.lost_in_hand_over(LossCause::Expired)),
                Ok(Heartbeat::Lost(cause)) => return Ok(self.lost_in_hand_over(cause)),
                Ok(Heartbeat::Overtaken) => {
                    StoreError::new(StoreErrorKind::Unavailable, "overtaken by a later heartbeat")
                }
                Err(error) => error,
            };
            let pause = pauses.next();
            if !error.is_retryable() || clock.now() + pause >= until {
                return Err(error);
            }
            sleep_until(clock, clock.now() + pause, limit).await;
            beat = self.cell.last_beat();
        }
    }

    fn lost_in_hand_over(mut self, cause: LossCause) -> (Self, Handed) {
        // The store has ended the lease: a release would change nothing.
        self.given_away = true;
        let (grant, clock) = (self.grant(), &self.settings.clock);
        let held = clock.now().since(self.cell.granted_at);
        self.settings.metrics.lost(&grant.key, held, cause);
        warn!(
            key = %grant.key, lessee = %grant.lessee, token = %grant.token, %cause,
            "lease lost while it was handed over"
        );
        (self, Handed::AlreadyLost(cause))
    }

    /// Stops the heartbeats without a release, as a crash does. The key is free when its ttl has passed, or when
    /// its session has ended.
    pub fn abandon(mut self) {
        self.given_away = true;
        self.cell.end(Ending::Lost(LossCause::Abandoned));
        self.runtime.send(Command::Remove(Arc::clone(&self.cell)));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.given_away {
            let deadline = self.cell.deadline().unwrap_or(self.cell.granted_at);
            let release = self.release_request(GiveBack::Release(None), deadline);
            // The end of the session frees the key. Thousands of such releases would only load the store.
            if self.cell.end(Ending::Released) == Ending::Lost(LossCause::SessionEnded) {
                return;
            }
            self.runtime.send(Command::Release(release));
        }
    }
}
