//! The guard of a key: a lease holds its key until it is dropped, released or lost.
//!
//! Start with [`Lease`]. [`ending`] has the calls that end a lease.

mod ending;
pub(crate) mod hand_over;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

pub use self::ending::Handed;

use crate::clock::{Moment, sleep_until};
use crate::error::StoreError;
use crate::heartbeat::command_queue::Command;
use crate::heartbeat::ending::{Ending, LeaseState};
use crate::heartbeat::lease_cell::LeaseCell;
use crate::heartbeat::locker_runtime::LockerRuntime;
use crate::key::{LeaseKey, Lessee};
use crate::lost::{LossCause, Lost};
use crate::session::standing::Standing;
use crate::settings::Settings;
use crate::store::attributes::{Attributes, Change};
use crate::store::grant::{Beat, Grant, Written};
use crate::store::lease_table::LeaseTable;
use crate::store::time_limit::within;
use crate::token::FencingToken;
use crate::waiter_queue::Turn;

/// Holds a key. Heartbeats in the background extend the lease until its release.
///
/// Dropping a lease releases the key in the background. [`release`](Self::release) waits for the store's
/// answer. A drop never blocks or panics, and needs no runtime. Dropping a *lost* lease also releases the
/// key, because its ttl may not have passed yet. So first stop all work under the lease, on all tasks and
/// threads.
///
/// At any time, [`is_held`](Self::is_held) returns true for at most one lease on a key. But a write may
/// still *arrive* late. So send the [`token`](Self::token) with the write, and let the receiver refuse
/// smaller tokens: see [`fence`](crate::fence).
///
/// # Examples
///
/// ```
/// use lease_core::{FencingToken, Locker};
/// use lease_memory::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = Locker::new(MemoryStore::new());
/// let lease = locker.wait_until_obtained(&"payroll".parse()?).await?;
/// match lease.run_until_lost(pay_everybody(lease.token())).await {
///     Ok(paid) => println!("{paid} paid"),
///     Err(lost) => println!("stopped in time: {lost}"),
/// }
/// lease.release().await?;
/// # Ok(())
/// # }
/// # async fn pay_everybody(token: FencingToken) -> u32 { 0 }
/// ```
#[must_use = "dropping a lease releases it: bind it to a name, since `let _ =` drops it"]
pub struct Lease {
    pub(crate) cell: Arc<LeaseCell>,
    attributes: Attributes,
    settings: Arc<Settings>,
    runtime: LockerRuntime,
    /// The longest ttl that was sent: the store may hold the key for this time without another heartbeat.
    reach: Duration,
    /// If true, the drop sends no release.
    given_away: bool,
    /// When the attempt has made this lease. `None` if the attempt did not read the clock then.
    obtained_at: Option<Moment>,
}

pub(crate) struct GrantedLease {
    pub(crate) grant: Grant,
    pub(crate) attributes: Attributes,
    pub(crate) granted_at: Moment,
    pub(crate) deadline: Moment,
    pub(crate) beat: Beat,
}

impl Lease {
    pub(crate) fn new(
        settings: &Arc<Settings>,
        runtime: &LockerRuntime,
        granted: GrantedLease,
    ) -> Self {
        let GrantedLease { grant, attributes, granted_at, deadline, beat } = granted;
        settings.metrics.began(&grant.key);
        let id = runtime.next_lease();
        let clock = Arc::clone(&settings.clock);
        let session = settings.session.as_ref().filter(|_| grant.parent.is_some());
        let mut cell = LeaseCell::new(id, grant, clock, granted_at, deadline);
        if let Some(session) = session {
            cell = cell.under(Standing::new(Arc::clone(&session.cell), runtime.heartbeater()));
        }
        cell.continue_beats(beat);
        let cell = Arc::new(cell);
        match cell.standing() {
            Some(standing) => standing.register(&cell),
            None => runtime.send(Command::Add(Arc::clone(&cell))),
        }
        if runtime.has_ended() {
            cell.end(Ending::Lost(LossCause::Abandoned));
        }
        Self {
            reach: cell.grant.ttl,
            cell,
            attributes,
            settings: Arc::clone(settings),
            runtime: runtime.clone(),
            given_away: false,
            obtained_at: None,
        }
    }

    pub(crate) fn obtained_at(mut self, now: Moment) -> Self {
        self.obtained_at = Some(now);
        self
    }

    /// The time from `start` to now, for a caller that has just received this lease.
    pub(crate) fn waited_since(&self, start: Moment) -> Duration {
        // On its own runtime, a caller receives the lease where it is made. On another one, the caller may be late.
        let now = self.obtained_at.filter(|_| self.runtime.is_current());
        now.unwrap_or_else(|| self.settings.clock.now()).since(start)
    }

    pub(crate) fn keep_turn(&self, turn: Turn) {
        self.cell.keep_turn(turn);
    }

    /// The key that is held.
    pub fn key(&self) -> &LeaseKey {
        &self.cell.grant.key
    }

    /// The lessee that holds the key.
    pub fn lessee(&self) -> &Lessee {
        &self.cell.grant.lessee
    }

    /// The fencing token of the grant.
    pub fn token(&self) -> FencingToken {
        self.cell.grant.token
    }

    /// The attributes of the record when the key was granted, including those of
    /// [`Locker::with_attributes`](crate::Locker::with_attributes).
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The grant, for code that writes to a [`LeaseTable`](crate::store::LeaseTable) itself.
    ///
    /// Prefer [`update`](Self::update), [`transfer`](Self::transfer) and [`delete`](Self::delete), which
    /// have a time limit and end the lease. After a transfer or a delete through the table itself,
    /// [`is_held`](Self::is_held) stays true until the next heartbeat. So stop the work before the write,
    /// and drop the lease right after the write.
    pub fn grant(&self) -> &Grant {
        &self.cell.grant
    }

    /// Returns whether this lease still holds the key.
    ///
    /// Compares the clock with the deadline, and sends no request. Returns false from the deadline
    /// on, even if tasks and the store hang. A lease that has ended is never held again.
    pub fn is_held(&self) -> bool {
        self.cell.ending().is_none()
    }

    /// The time until the deadline; zero after the end of the lease.
    pub fn remaining(&self) -> Duration {
        self.cell.remaining()
    }

    /// Subscribes to the state of the lease.
    ///
    /// At [`LeaseState::AtRisk`], start no new work.
    pub fn state(&self) -> watch::Receiver<LeaseState> {
        self.cell.state()
    }

    /// Completes once the lease is lost, before another lessee can obtain the key.
    ///
    /// If the deadline passed while the process was paused, the first poll completes. After a
    /// suspension of the machine, this poll comes within a second of the wake-up, because timers
    /// stop during a suspension.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) -> Lost {
        self.runtime.with_timers(self.until_lost()).await
    }

    async fn until_lost(&self) -> Lost {
        let recheck = self.settings.options.heartbeat_period().min(RECHECK);
        loop {
            let mut ended = pin!(self.cell.ended.notified());
            ended.as_mut().enable();
            let deadline = match self.cell.deadline() {
                Some(deadline) if self.is_held() => deadline,
                _ => return self.loss(),
            };
            select! {
                biased;
                () = ended => (),
                // The heartbeater's runtime may be blocked, so this timer is on the caller's
                // runtime. The timer checks the clock at every poll: if a poll is late, the loss
                // must still complete before the other branches of the caller's `select!`.
                () = sleep_until(&*self.settings.clock, deadline, recheck) => (),
            }
        }
    }

    /// Runs `work` while the lease is held. Returns its output, or the loss.
    ///
    /// On a loss, this call drops `work` at its current await, before another lessee can obtain the
    /// key. Work that blocks its thread cannot be stopped.
    ///
    /// # Errors
    ///
    /// If the lease was lost before `work` completed, or during its last poll. The output is dropped.
    ///
    /// The work runs in a span `lease_work` with the fields `key`, `lessee` and `token`.
    ///
    /// # Cancel safety
    ///
    /// As safe as `work`, which is dropped, too.
    pub async fn run_until_lost<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let grant = self.grant();
        let work = work.instrument(info_span!(
            "lease_work", key = %grant.key, lessee = %grant.lessee, token = grant.token.get()
        ));
        select! {
            // Polls the loss first, so that the work is not polled again after a loss.
            biased;
            lost = self.lost() => Err(lost),
            // The deadline may have passed during the last poll of the work.
            output = work => if self.is_held() { Ok(output) } else { Err(self.loss()) },
        }
    }

    /// Returns a token that is cancelled one [`grace`](crate::LeaseOptions::grace) before the
    /// deadline, and when the lease ends in any way.
    ///
    /// Use the token for work that must clean up. If the lease ends for another reason than failed
    /// heartbeats, the token is cancelled without a grace. A cancelled token stays cancelled, even
    /// if a heartbeat then extends the lease.
    ///
    /// The heartbeater's task cancels the token. After a pause of the process, this may be late: check
    /// [`is_held`](Self::is_held) as well. If you cancel the token, no other token is cancelled.
    pub fn cancelled_on_loss(&self) -> CancellationToken {
        self.cell.work()
    }

    /// Changes attributes on the record of the key, if the lease is still held and all expectations
    /// of `change` hold.
    ///
    /// Pass the table of the locker. If the table answers that the lease is lost, this lease ends.
    /// The call does not extend the lease.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown, also after the [request timeout](crate::LeaseOptions::request_timeout):
    /// the store may apply the change later. Repeat the same change.
    /// [`LeaseTable::update`](crate::store::LeaseTable::update) explains the answers.
    ///
    /// # Cancel safety
    ///
    /// If the call is dropped, the record may or may not have changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_core::{Change, Locker, Written};
    /// use lease_memory::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let lease = Locker::new(store.clone()).wait_until_obtained(&"import".parse()?).await?;
    ///
    /// let change = Change::new().expecting_none("line").set("line", 100);
    /// assert_eq!(lease.update(&store, &change).await?, Written::Applied);
    /// assert_eq!(lease.update(&store, &change).await?, Written::Unexpected);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn update(
        &self,
        table: &dyn LeaseTable,
        change: &Change,
    ) -> Result<Written, StoreError> {
        if let Some(ending) = self.cell.ending() {
            return Ok(Written::Lost(ending.cause()));
        }
        let limit = self.settings.options.request_timeout();
        let written = table.update(self.grant(), change);
        let written = self.runtime.with_timers(within(limit, written)).await?;
        if let Written::Lost(cause) = written {
            self.cell.end(Ending::Lost(cause));
            self.runtime.send(Command::Remove(Arc::clone(&self.cell)));
        }
        Ok(written)
    }

    fn loss(&self) -> Lost {
        let cause = self.cell.ending().map_or(LossCause::Expired, Ending::cause);
        Lost::new(self.key().clone(), self.token(), cause)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("lessee", self.lessee())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

const RECHECK: Duration = Duration::from_secs(1);
