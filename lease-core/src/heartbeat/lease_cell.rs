//! The state that a lease shares with its heartbeater. One atomic word stores whether the lease is held.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment};
use crate::heartbeat::command_queue::Command;
use crate::heartbeat::ending::{Ending, LeaseState, ending_of, word_of, word_of_ending};
use crate::lost::LossCause;
use crate::session::standing::{Children, Standing};
use crate::store::grant::{Beat, Grant};
use crate::waiter_queue::Turn;

pub(crate) struct LeaseCell {
    pub(crate) id: u64,
    pub(crate) grant: Grant,
    pub(crate) granted_at: Moment,
    clock: Arc<dyn Clock>,
    /// The deadline in nanoseconds of lease time, or how the lease ended. Compare-and-swap on this
    /// word orders an extension and the end of the lease.
    word: AtomicU64,
    beats: AtomicU64,
    is_at_risk: AtomicBool,
    pub(crate) ended: Notify,
    signals: Mutex<Signals>,
    /// The session of this lease, if any. The lease then has no deadline of its own.
    standing: Option<Box<Standing>>,
    /// Most leases have no children.
    children: OnceLock<Box<Children>>,
}

#[derive(Default)]
struct Signals {
    winding_down: bool,
    // `state` and `work` are created on first use, because most leases need neither.
    state: Option<watch::Sender<LeaseState>>,
    work: Option<CancellationToken>,
    turn: Option<Turn>,
}

impl LeaseCell {
    pub(crate) fn new(
        id: u64,
        grant: Grant,
        clock: Arc<dyn Clock>,
        granted_at: Moment,
        deadline: Moment,
    ) -> Self {
        Self {
            id,
            grant,
            granted_at,
            clock,
            word: AtomicU64::new(word_of(deadline)),
            beats: AtomicU64::new(Beat::GRANTED.get()),
            is_at_risk: AtomicBool::new(false),
            ended: Notify::new(),
            signals: Mutex::default(),
            standing: None,
            children: OnceLock::new(),
        }
    }

    pub(crate) fn under(self, standing: Standing) -> Self {
        let word = AtomicU64::new(u64::MAX);
        Self { word, standing: Some(Box::new(standing)), ..self }
    }

    pub(crate) fn standing(&self) -> Option<&Standing> {
        self.standing.as_deref()
    }

    pub(crate) fn children(&self) -> &Children {
        self.children.get_or_init(Box::default)
    }

    fn all_children(&self) -> Vec<Arc<Self>> {
        self.children.get().map_or_else(Vec::new, |children| children.all())
    }

    /// How the lease ended; `None` while the lease is held. Checks the clock, and ends the lease if the
    /// deadline has passed.
    pub(crate) fn ending(&self) -> Option<Ending> {
        loop {
            let word = self.word.load(Ordering::SeqCst);
            if let Some(ending) = ending_of(word) {
                return Some(ending);
            }
            self.end_from(word, Ending::Lost(self.loss_at(self.clock.now(), word)?));
        }
    }

    fn loss_at(&self, now: Moment, word: u64) -> Option<LossCause> {
        let (is_over, cause) = match &self.standing {
            Some(standing) => (standing.session.ending().is_some(), LossCause::SessionEnded),
            None => (now >= Moment::from_nanos(word), LossCause::Expired),
        };
        is_over.then_some(cause)
    }

    /// Ends a lease whose session has ended. The heartbeater counts the loss.
    fn end_with_session(self: &Arc<Self>) {
        if let (Some(Ending::Lost(_)), Some(standing)) = (self.ending(), &self.standing) {
            standing.heartbeater.send(Command::Remove(Arc::clone(self)));
        }
    }

    /// How the lease ended, if a call has noticed the end. Does not read the clock, and changes nothing.
    #[cfg(feature = "conformance")]
    pub(crate) fn noticed_ending(&self) -> Option<Ending> {
        ending_of(self.word.load(Ordering::SeqCst))
    }

    /// `None` once the lease has ended. Does not end the lease.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let word = self.word.load(Ordering::SeqCst);
        match &self.standing {
            _ if ending_of(word).is_some() => None,
            Some(standing) => standing.session.deadline(),
            None => Some(Moment::from_nanos(word)),
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.deadline().map_or(Duration::ZERO, |at| at.since(self.clock.now()))
    }

    /// The old deadline may have passed after `now`, unnoticed by any call. The lease then stays
    /// held, because the store extended the lease before the old deadline.
    pub(crate) fn extend(&self, deadline: Moment, now: Moment) -> Result<(), Ending> {
        loop {
            let word = self.word.load(Ordering::SeqCst);
            if let Some(ending) = ending_of(word) {
                return Err(ending);
            }
            if now >= Moment::from_nanos(word) {
                self.end_from(word, Ending::Lost(LossCause::Expired));
                continue;
            }
            let later = word.max(word_of(deadline));
            if self.word.compare_exchange(word, later, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return Ok(());
            }
        }
    }

    /// Ends the lease, unless the lease has ended before. Returns how the lease ended.
    ///
    /// A lease whose deadline has passed counts as expired: its holder cannot release a key that
    /// another lessee may have. A cause that the store reported is more precise than the expiry.
    pub(crate) fn end(&self, ending: Ending) -> Ending {
        self.end_at(ending, self.clock.now())
    }

    pub(crate) fn end_at(&self, ending: Ending, now: Moment) -> Ending {
        loop {
            let word = self.word.load(Ordering::SeqCst);
            if let Some(earlier) = ending_of(word) {
                return earlier;
            }
            let ending = match ending {
                Ending::Released | Ending::Lost(LossCause::Abandoned) => {
                    self.loss_at(now, word).map_or(ending, Ending::Lost)
                }
                ending @ Ending::Lost(_) => ending,
            };
            self.end_from(word, ending);
        }
    }

    fn end_from(&self, word: u64, ending: Ending) {
        let ended = word_of_ending(ending);
        if self.word.compare_exchange(word, ended, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        let (work, turn) = {
            let mut signals = self.signals();
            signals.winding_down = true;
            // After a loss, the next waiter of this locker may try. After a release, the release
            // request keeps the turn until the store answers.
            let turn = match ending {
                Ending::Lost(_) => signals.turn.take(),
                Ending::Released => None,
            };
            (signals.work.take(), turn)
        };
        // Called after the lock is released: each call runs wakers, which may call this cell.
        self.publish();
        if let Some(work) = work {
            work.cancel();
        }
        drop(turn);
        self.ended.notify_waiters();
        for child in self.all_children() {
            child.end_with_session();
        }
    }

    pub(crate) fn wind_down(&self) {
        let work = {
            let mut signals = self.signals();
            signals.winding_down = true;
            signals.work.take()
        };
        if let Some(work) = work {
            work.cancel();
        }
    }

    pub(crate) fn put_at_risk(&self) {
        self.set_at_risk(true);
    }

    pub(crate) fn take_out_of_risk(&self) {
        self.set_at_risk(false);
    }

    fn set_at_risk(&self, is_at_risk: bool) {
        if self.is_at_risk.swap(is_at_risk, Ordering::SeqCst) != is_at_risk {
            self.publish();
            for child in self.all_children() {
                child.publish();
            }
        }
    }

    /// This runs wakers: never call `publish` under the lock.
    fn publish(&self) {
        let Some(state) = self.signals().state.clone() else { return };
        // Reads the state under the channel's own lock, so that the last call publishes the latest state.
        state.send_if_modified(|published| {
            let current = self.noticed_state();
            std::mem::replace(published, current) != current
        });
    }

    /// Does not read the clock.
    fn noticed_state(&self) -> LeaseState {
        match ending_of(self.word.load(Ordering::SeqCst)) {
            Some(ending) => ending.into(),
            None if self.is_at_risk() => LeaseState::AtRisk,
            None => LeaseState::Held,
        }
    }

    fn is_at_risk(&self) -> bool {
        let session = self.standing.as_ref().map(|standing| &standing.session.is_at_risk);
        session.unwrap_or(&self.is_at_risk).load(Ordering::SeqCst)
    }

    pub(crate) fn state(&self) -> watch::Receiver<LeaseState> {
        self.ending();
        let receiver = {
            let mut signals = self.signals();
            let new = || watch::Sender::new(self.noticed_state());
            signals.state.get_or_insert_with(new).subscribe()
        };
        // If the lease ended since `noticed_state`, `end_from` may have found no sender.
        self.publish();
        receiver
    }

    pub(crate) fn work(&self) -> CancellationToken {
        let ended = self.ending().is_some();
        // The session's `CancellationToken` also cancels the token of this lease.
        let of_session = self.standing.as_ref().map(|standing| standing.session.work());
        let mut signals = self.signals();
        if ended || signals.winding_down {
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            return cancelled;
        }
        signals.work.get_or_insert_with(|| of_session.unwrap_or_default()).child_token()
    }

    pub(crate) fn take_turn(&self) -> Option<Turn> {
        self.signals().turn.take()
    }

    /// Keeps the turn until the lease ends. Drops the turn at once if the lease was lost before.
    pub(crate) fn keep_turn(&self, turn: Turn) {
        self.signals().turn = Some(turn);
        if let Some(Ending::Lost(_)) = self.ending() {
            drop(self.take_turn());
        }
    }

    pub(crate) fn continue_beats(&self, beat: Beat) {
        self.beats.fetch_max(beat.get(), Ordering::SeqCst);
    }

    /// Larger than every earlier number; `None` after `last_beat`.
    pub(crate) fn next_beat(&self) -> Option<Beat> {
        let next = |beats: u64| (beats & LAST == 0).then(|| beats + 1);
        let before = self.beats.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()?;
        Some(Beat::new(before).next())
    }

    /// Returns the number of the last heartbeat. From then on, `next_beat` returns `None`. A
    /// repetition gets a larger number.
    pub(crate) fn last_beat(&self) -> Beat {
        self.beats.fetch_or(LAST, Ordering::SeqCst);
        Beat::new(self.beats.fetch_add(1, Ordering::SeqCst) & !LAST).next()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn signals(&self) -> MutexGuard<'_, Signals> {
        self.signals.lock()
    }
}

impl Ending {
    pub(crate) fn cause(self) -> LossCause {
        match self {
            Self::Lost(cause) => cause,
            Self::Released => LossCause::Expired,
        }
    }
}

impl fmt::Debug for LeaseCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseCell")
            .field("key", &self.grant.key)
            .field("lessee", &self.grant.lessee)
            .field("token", &self.grant.token)
            .field("ending", &ending_of(self.word.load(Ordering::SeqCst)))
            .finish_non_exhaustive()
    }
}

/// The bit of `beats` that `last_beat` sets: no other heartbeat may get a number.
const LAST: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Wake, Waker};
    use std::thread;

    use super::*;
    use crate::clock::SkewedClock;
    use crate::store::grant::Claim;
    use crate::store::nonce::Nonce;
    use crate::token::FencingToken;

    const MINUTE: Duration = Duration::from_secs(60);

    fn cell() -> (LeaseCell, Arc<SkewedClock>) {
        let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
        let (key, lessee) = ("key".parse().unwrap(), "lessee".parse().unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), MINUTE);
        let grant = claim.granted(FencingToken::new(1).unwrap());
        let now = clock.now();
        let shared = Arc::clone(&clock) as Arc<dyn Clock>;
        (LeaseCell::new(0, grant, shared, now, now + MINUTE), clock)
    }

    #[test]
    fn ended_lease_is_not_extended() {
        let (cell, clock) = cell();
        cell.end(Ending::Lost(LossCause::Revoked));

        let extended = cell.extend(clock.now() + MINUTE * 2, clock.now());

        assert_eq!(extended, Err(Ending::Lost(LossCause::Revoked)));
        assert_eq!(cell.ending(), Some(Ending::Lost(LossCause::Revoked)));
    }

    #[test]
    fn passed_deadline_is_not_extended() {
        let (cell, clock) = cell();
        clock.leap(MINUTE);

        let extended = cell.extend(clock.now() + MINUTE, clock.now());

        assert_eq!(extended, Err(Ending::Lost(LossCause::Expired)));
    }

    #[test]
    fn first_ending_counts() {
        let (cell, _clock) = cell();
        cell.end(Ending::Released);
        cell.end(Ending::Lost(LossCause::Superseded));

        assert_eq!(cell.ending(), Some(Ending::Released));
    }

    #[test]
    fn lease_is_not_released_after_its_deadline() {
        for ending in [Ending::Released, Ending::Lost(LossCause::Abandoned)] {
            let (cell, clock) = cell();
            clock.leap(MINUTE);

            assert_eq!(cell.end(ending), Ending::Lost(LossCause::Expired));
        }
    }

    #[test]
    fn cause_from_store_replaces_expiry() {
        let (cell, clock) = cell();
        clock.leap(MINUTE);

        let ended = cell.end(Ending::Lost(LossCause::Superseded));

        assert_eq!(ended, Ending::Lost(LossCause::Superseded));
    }

    #[test]
    fn extension_never_shortens_lease() {
        let (cell, clock) = cell();
        let before = cell.deadline();

        cell.extend(clock.now(), clock.now()).unwrap();

        assert_eq!(cell.deadline(), before);
    }

    struct ReadsState(Arc<LeaseCell>);

    impl Wake for ReadsState {
        fn wake(self: Arc<Self>) {
            drop(self.0.state());
        }
    }

    #[test]
    fn waker_may_read_state() {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let cell = Arc::new(cell().0);
            let waker = Waker::from(Arc::new(ReadsState(Arc::clone(&cell))));
            let mut context = Context::from_waker(&waker);
            let mut state = cell.state();
            {
                let mut changed = pin!(state.changed());
                assert!(changed.as_mut().poll(&mut context).is_pending());
                cell.put_at_risk();
            }
            state.mark_unchanged();
            {
                let mut changed = pin!(state.changed());
                assert!(changed.as_mut().poll(&mut context).is_pending());
                cell.end(Ending::Released);
            }
            done.send(()).unwrap();
        });

        // In another thread, so that the test fails if the calls deadlock.
        is_done.recv_timeout(MINUTE).unwrap();
    }

    #[test]
    fn no_heartbeat_comes_after_the_last() {
        let (cell, _clock) = cell();
        assert_eq!(cell.next_beat(), Some(Beat::new(1)));

        assert_eq!(cell.last_beat(), Beat::new(2));
        assert_eq!(cell.next_beat(), None);
        assert_eq!(cell.last_beat(), Beat::new(3));
    }
}
