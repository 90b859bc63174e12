//! The guard: a key is yours while you keep this, and while it says so.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::attributes::Attributes;
use crate::clock::{Moment, sleep_until};
use crate::error::{StoreError, StoreErrorKind};
use crate::grant::{Beat, Grant, Heartbeat};
use crate::handover::HandOver;
use crate::hold::{Ending, Hold, LeaseState};
use crate::home::Home;
use crate::inbox::Command;
use crate::key::{LeaseKey, Lessee};
use crate::lost::LossCause;
use crate::lost::Lost;
use crate::options::LeaseOptions;
use crate::queue::Turn;
use crate::release::Release;
use crate::retry::{Pauses, within};
use crate::settings::Settings;
use crate::token::FencingToken;

/// A key that you hold: kept alive from grant to release, by heartbeats in the background.
///
/// Dropping it releases it, in the background; [`release`](Self::release) waits for that.
/// Dropping neither blocks, panics nor needs a runtime. Dropping a *lost* lease frees the key too,
/// since its ttl may not have passed yet: so stop everything that runs under it first, whatever
/// you started elsewhere included.
///
/// What it promises: while [`is_held`](Self::is_held) says so, nobody else's lease on the key
/// does. What it cannot promise: that a write which you began in time *arrives* in time. Send
/// the [`token`](Self::token) along, and let the receiver refuse older ones:
/// see [`fence`](crate::fence).
///
/// # Examples
///
/// ```no_run
/// # async fn run(locker: lease_core::Locker) -> Result<(), Box<dyn std::error::Error>> {
/// let lease = locker.wait_until_obtained(&"payroll".parse()?).await?;
/// match lease.run_until_lost(pay_everybody(lease.token())).await {
///     Ok(paid) => println!("{paid} paid"),
///     Err(lost) => println!("stopped in time: {lost}"),
/// }
/// lease.release().await?;
/// # Ok(())
/// # }
/// # async fn pay_everybody(token: lease_core::FencingToken) -> u32 { 0 }
/// ```
#[must_use = "a lease that is dropped is released: bind it to a name, since `let _ =` drops it"]
pub struct Lease {
    pub(crate) hold: Arc<Hold>,
    attributes: Attributes,
    settings: Arc<Settings>,
    home: Home,
    /// How long the store may keep the key by itself: the longest ttl that was sent.
    reach: Duration,
    /// Whether the key is somebody else's business now: released, or handed over.
    given_away: bool,
}

/// How a release ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the lease was there to be released or it was not")]
pub enum Released {
    /// The key is free.
    Freed,
    /// The lease was lost before it could be released: the key is free already, or somebody
    /// else's.
    AlreadyLost(LossCause),
}

/// How a hand-over ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a hand-over that nobody resumes blocks the key until it runs out"]
#[expect(clippy::exhaustive_enums, reason = "the lease was there to be handed over or it was not")]
pub enum Handed {
    /// The key is kept for whoever resumes this.
    Over(HandOver),
    /// The lease was lost before it could be handed over.
    AlreadyLost(LossCause),
}

/// What a lease is made of.
pub(crate) struct GrantedLease {
    pub(crate) grant: Grant,
    pub(crate) attributes: Attributes,
    pub(crate) granted_at: Moment,
    pub(crate) deadline: Moment,
    /// The number of the last heartbeat that was sent.
    pub(crate) beat: Beat,
}

impl Lease {
    pub(crate) fn new(settings: &Arc<Settings>, home: &Home, granted: GrantedLease) -> Self {
        let GrantedLease { grant, attributes, granted_at, deadline, beat } = granted;
        let id = home.next_lease();
        let clock = Arc::clone(&settings.clock);
        let hold = Hold::new(id, grant, clock, granted_at, deadline);
        hold.continue_beats(beat);
        let hold = Arc::new(hold);
        home.tell(Command::Keep(Arc::clone(&hold)));
        if home.is_gone() {
            hold.end(Ending::Lost(LossCause::Abandoned));
        }
        Self {
            reach: hold.grant.ttl,
            hold,
            attributes,
            settings: Arc::clone(settings),
            home: home.clone(),
            given_away: false,
        }
    }

    /// Waiters of this process wait until this lease has ended.
    pub(crate) fn keep_turn(&self, turn: Turn) {
        self.hold.keep_turn(turn);
    }

    /// What is held.
    pub fn key(&self) -> &LeaseKey {
        &self.hold.grant.key
    }

    /// Who holds it.
    pub fn lessee(&self) -> &Lessee {
        &self.hold.grant.lessee
    }

    /// Orders this grant among all of its key: larger than every earlier one.
    pub fn token(&self) -> FencingToken {
        self.hold.grant.token
    }

    /// What was on the record when the key was obtained. Later updates do not show here.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The grant itself: for writes to a [`LeaseTable`](crate::LeaseTable).
    ///
    /// After a [`transfer`](crate::LeaseTable::transfer) or a
    /// [`delete`](crate::LeaseTable::delete) under it, drop the lease at once, and end its work before:
    /// [`is_held`](Self::is_held) says so until the next heartbeat, while another lessee may have
    /// the key already.
    pub fn grant(&self) -> &Grant {
        &self.hold.grant
    }

    /// Whether the key is still yours.
    ///
    /// Compares clocks, and asks nobody: false from the deadline on, whatever the tasks and the
    /// store are doing. Once false, it stays false.
    pub fn is_held(&self) -> bool {
        self.hold.ending().is_none()
    }

    /// How long the key is still yours if no further heartbeat succeeds; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Follows where the lease stands.
    ///
    /// The current value is there at once: this is a [`tokio::sync::watch::Receiver`], to
    /// `wait_for` a state or to look at with `borrow`. [`LeaseState::AtRisk`] is the time to stop
    /// taking on new work.
    pub fn state(&self) -> watch::Receiver<LeaseState> {
        self.hold.state()
    }

    /// Completes once the lease is lost, before anybody else can obtain the key.
    ///
    /// A process that was paused finds it complete at its first poll. After the machine was suspended,
    /// that comes within a second of waking, or at once where something else wakes the task: timers
    /// stand still meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Safe: call it as often as you like.
    pub async fn lost(&self) -> Lost {
        self.home.with_timers(self.until_lost()).await
    }

    async fn until_lost(&self) -> Lost {
        let recheck = self.settings.options.heartbeat_period().min(RECHECK);
        loop {
            let mut ended = pin!(self.hold.ended.notified());
            ended.as_mut().enable();
            let deadline = match self.hold.deadline() {
                Some(deadline) if self.is_held() => deadline,
                _ => return self.loss(),
            };
            select! {
                biased;
                () = ended => (),
                // Beside the heartbeater's own timer, which another runtime may hold up. Looks
                // at the clock at every poll: the runtime may wake late, and then whatever is
                // selected beside this must not go first.
                () = sleep_until(&*self.settings.clock, deadline, recheck) => (),
            }
        }
    }

    /// Runs `work` while the lease is held: its output, or the loss.
    ///
    /// On loss, `work` is dropped at once, at whichever await it stands, before anybody else
    /// can obtain the key. It is polled on this task: work that blocks its thread cannot be
    /// stopped.
    ///
    /// # Errors
    ///
    /// Where the lease was lost before `work` completed, also within its last poll: the output is then
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// As safe as `work`, which is dropped too.
    pub async fn run_until_lost<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        select! {
            // Loss first: no step of the work is taken after it.
            biased;
            lost = self.lost() => Err(lost),
            // The deadline may have passed within its last poll.
            output = work => if self.is_held() { Ok(output) } else { Err(self.loss()) },
        }
    }

    /// A token that is cancelled `grace` before the deadline, and when the lease ends in any
    /// way: for work that must wind down rather than be dropped.
    ///
    /// Once cancelled it stays so, also where a heartbeat in the last moment saves the lease. It
    /// is cancelled by the heartbeater's task. Where the process was paused, check
    /// [`is_held`](Self::is_held) as well. Cancelling it yourself cancels no other.
    pub fn cancelled_on_loss(&self) -> CancellationToken {
        self.hold.work()
    }

    /// Gives the key back.
    ///
    /// The lease is no longer held from the first poll on. A store that does not answer is
    /// asked again until it does, or until the ttl has passed.
    ///
    /// A task on the locker's runtime sends the request. A `current_thread` runtime runs tasks only within
    /// its `block_on`: a call from elsewhere does not return before then, without a limit, since a limit
    /// needs a timer, which the caller's runtime may not have. The key is free when its ttl has passed. A
    /// locker [on its own thread](crate::Locker::on_own_thread) does not depend on the caller's runtime.
    ///
    /// # Errors
    ///
    /// Where it is unknown whether the key is free yet: it will be when its ttl has passed.
    ///
    /// # Cancel safety
    ///
    /// Safe: the key is given back all the same.
    pub async fn release(self) -> Result<Released, StoreError> {
        self.give_back(None).await
    }

    /// Gives the key back, but keeps it from everybody for `reserved`: for work that should not
    /// run again so soon. At most [`LeaseOptions::MAX_RESERVATION`], seven days.
    ///
    /// # Errors
    ///
    /// As for [`release`](Self::release). Where `reserved` is too long, the key is given back
    /// without a reservation.
    ///
    /// # Cancel safety
    ///
    /// Safe: the key is given back all the same.
    pub async fn release_reserved(self, reserved: Duration) -> Result<Released, StoreError> {
        let longest = LeaseOptions::MAX_RESERVATION;
        if reserved > longest {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                format!("a reservation of {reserved:?} is too long: at most seven days"),
            ));
        }
        self.give_back(Some(reserved)).await
    }

    async fn give_back(mut self, reserved: Option<Duration>) -> Result<Released, StoreError> {
        self.given_away = true;
        if let Ending::Lost(cause) = self.hold.end(Ending::Released) {
            self.home.tell(Command::Release(self.on_its_way(reserved)));
            return Ok(Released::AlreadyLost(cause));
        }
        // The heartbeater need not be woken for what it has no part in.
        self.home.tell(Command::Leave(Arc::clone(&self.hold)));
        let release = self.on_its_way(reserved).deliver(Arc::clone(&self.settings));
        self.home.answer_of_task(release).await.map(|()| Released::Freed)
    }

    fn on_its_way(&self, reserved: Option<Duration>) -> Release {
        let (hold, errand) = (Arc::clone(&self.hold), self.home.errand());
        Release { hold, reserved, reach: self.reach, errand }
    }

    /// Hands the key over to another process, which has `wait` to
    /// [`resume`](crate::Locker::resume) it.
    ///
    /// The lease is no longer held from the first poll on, and its work is cancelled: whoever
    /// resumes may begin at once. The last heartbeat reaches `wait` far:
    /// [`LeaseOptions::MIN_TTL`] to [`LeaseOptions::MAX_TTL`]. Nobody can obtain the key
    /// meanwhile; afterwards anybody can.
    ///
    /// # Errors
    ///
    /// Where `wait` is out of range, or the store did not answer while the lease lasted. The key
    /// is then released.
    ///
    /// # Cancel safety
    ///
    /// Safe: a hand-over that nobody receives is released.
    pub async fn hand_over(self, wait: Duration) -> Result<Handed, StoreError> {
        LeaseOptions::check_range("wait", wait)
            .map_err(|invalid| StoreError::new(StoreErrorKind::Refused, invalid))?;
        let home = self.home.clone();
        // Where nobody listens any more, the lease is dropped with the answer, and released.
        let (mut lease, handed) = home.answer_of_task(self.last_heartbeat(wait)).await?;
        // Received: from here on the key is whose the hand-over is.
        lease.given_away |= matches!(handed, Handed::Over(_));
        drop(lease.hold.take_turn());
        Ok(handed)
    }

    /// Ends the lease here, and sends a heartbeat that reaches `wait` far, after which no other
    /// is sent.
    async fn last_heartbeat(mut self, wait: Duration) -> Result<(Self, Handed), StoreError> {
        let _errand = self.home.errand();
        let settings = Arc::clone(&self.settings);
        let (clock, options) = (&*settings.clock, &settings.options);
        let mut grant = self.grant().clone();
        grant.ttl = wait;
        let until = self.hold.deadline().unwrap_or_else(|| clock.now());
        // First the number, so that no heartbeat comes after it; then the end, so that the work
        // has stopped before anybody can go on with it.
        let mut beat = self.hold.last_beat();
        if let Ending::Lost(cause) = self.hold.end(Ending::Released) {
            return Ok((self, Handed::AlreadyLost(cause)));
        }
        self.reach = self.reach.max(wait);

        let mut pauses = Pauses::new(options, &settings.random);
        loop {
            let sent = clock.now();
            let limit = options.request_timeout().min(until.since(sent));
            let error = match within(limit, settings.store.heartbeat(&grant, beat)).await {
                Ok(Heartbeat::Extended) if clock.now() < sent + settings.trusted(wait) => {
                    settings.metrics.released(&grant.key, clock.now().since(self.hold.granted_at));
                    return Ok((self, Handed::Over(HandOver::new(grant))));
                }
                Ok(Heartbeat::Extended) => return Ok(self.lost_on_the_way(LossCause::Expired)),
                Ok(Heartbeat::Lost(cause)) => return Ok(self.lost_on_the_way(cause)),
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
            beat = self.hold.last_beat();
        }
    }

    /// Counts a loss that the heartbeater no longer sees.
    fn lost_on_the_way(mut self, cause: LossCause) -> (Self, Handed) {
        // There is nothing left to give back.
        self.given_away = true;
        let (grant, clock) = (self.grant(), &self.settings.clock);
        let held = clock.now().since(self.hold.granted_at);
        self.settings.metrics.lost(&grant.key, held, cause);
        warn!(
            key = %grant.key, lessee = %grant.lessee, token = %grant.token, %cause,
            "lease lost while it was handed over"
        );
        (self, Handed::AlreadyLost(cause))
    }

    /// Stops keeping the lease alive and does not give it back: what a crash leaves behind. The
    /// key is free again when its ttl has passed.
    ///
    /// For tests of what happens then; and for a key that nobody should have so soon.
    pub fn abandon(mut self) {
        self.given_away = true;
        self.hold.end(Ending::Lost(LossCause::Abandoned));
        self.home.tell(Command::Leave(Arc::clone(&self.hold)));
    }

    fn loss(&self) -> Lost {
        let cause = match self.hold.ending() {
            Some(Ending::Lost(cause)) => cause,
            Some(Ending::Released) | None => LossCause::Expired,
        };
        Lost::new(self.key().clone(), self.token(), cause)
    }
}

impl Drop for Lease {
    /// Only signals: the heartbeater does the rest.
    fn drop(&mut self) {
        if !self.given_away {
            self.hold.end(Ending::Released);
            self.home.tell(Command::Release(self.on_its_way(None)));
        }
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

/// The longest time without a look at the clock while a loss is waited for.
const RECHECK: Duration = Duration::from_secs(1);
