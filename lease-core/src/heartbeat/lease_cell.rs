//! What a lease and its heartbeater share: one word says whether it is held.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment};
use crate::grant::{Beat, Grant};
use crate::lost::LossCause;
use crate::queue::Turn;

/// Where a lease stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeaseState {
    /// Held, and the last heartbeat succeeded.
    Held,
    /// Still held, but the last heartbeat failed, or took longer than a
    /// [request may](crate::LeaseOptions::request_timeout). Time is left; nothing is lost yet. A single one that hangs is sent again at once, and may not show.
    AtRisk,
    /// Lost: others may have it.
    Lost(LossCause),
    /// Given back or handed over by its holder.
    Released,
}

pub(crate) struct Hold {
    /// Tells it from the other leases of its heartbeater.
    pub(crate) id: u64,
    pub(crate) grant: Grant,
    pub(crate) granted_at: Moment,
    clock: Arc<dyn Clock>,
    /// The deadline in nanoseconds of lease time, or how the lease ended. One word, so that
    /// whoever sees the deadline pass and whoever extends it agree on which came first.
    word: AtomicU64,
    beats: AtomicU64,
    is_at_risk: AtomicBool,
    /// Wakes `lost()`.
    pub(crate) ended: Notify,
    signals: Mutex<Signals>,
}

/// How a lease ended: by loss, or by its holder's will.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Released,
    Lost(LossCause),
}

#[derive(Default)]
struct Signals {
    winding_down: bool,
    // Made when first asked for: most leases never are, and there may be 100,000.
    state: Option<watch::Sender<LeaseState>>,
    work: Option<CancellationToken>,
    /// The place at the head of this process' queue for the key.
    turn: Option<Turn>,
}

impl Hold {
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
        }
    }

    /// How the lease ended, if it has. Looks at the clock: a deadline that has passed ends the
    /// lease here and now, whatever the heartbeater is doing.
    pub(crate) fn ending(&self) -> Option<Ending> {
        loop {
            let word = self.word.load(Ordering::SeqCst);
            if let Some(ending) = ending_of(word) {
                return Some(ending);
            }
            if self.clock.now() < Moment::from_nanos(word) {
                return None;
            }
            self.end_from(word, Ending::Lost(LossCause::Expired));
        }
    }

    /// How the lease ended, if anybody has noticed. Only looks.
    #[cfg(feature = "conformance")]
    pub(crate) fn noticed_ending(&self) -> Option<Ending> {
        ending_of(self.word.load(Ordering::SeqCst))
    }

    pub(crate) fn deadline(&self) -> Option<Moment> {
        let word = self.word.load(Ordering::SeqCst);
        ending_of(word).is_none().then(|| Moment::from_nanos(word))
    }

    /// Only looks: unlike `ending`, it ends nothing.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline().map_or(Duration::ZERO, |at| at.since(self.clock.now()))
    }

    /// Moves the deadline, unless the lease has ended by `now`: what ended stays ended.
    ///
    /// `now` may be a moment ago. Where the deadline has passed since, and nobody has seen it, the lease
    /// goes on: the store has extended it before it answered. The new deadline is judged by the next look.
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

    /// Ends the lease, if it has not ended; says how it ended.
    ///
    /// A passed deadline has ended it before: its holder cannot release what others may have. What the
    /// store says of a loss tells more than the clock.
    pub(crate) fn end(&self, ending: Ending) -> Ending {
        loop {
            let word = self.word.load(Ordering::SeqCst);
            if let Some(earlier) = ending_of(word) {
                return earlier;
            }
            let is_over = || self.clock.now() >= Moment::from_nanos(word);
            let ending = match ending {
                Ending::Released | Ending::Lost(LossCause::Abandoned) if is_over() => {
                    Ending::Lost(LossCause::Expired)
                }
                ending => ending,
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
            // After a loss, the next waiter of this process may try. After a release, it
            // waits until the store has been told: the turn goes along.
            let turn = match ending {
                Ending::Lost(_) => signals.turn.take(),
                Ending::Released => None,
            };
            (signals.work.take(), turn)
        };
        // All of them run wakers, which may call this hold: not under the lock.
        self.publish();
        if let Some(work) = work {
            work.cancel();
        }
        drop(turn);
        self.ended.notify_waiters();
    }

    /// Cancels the work under this lease, whose deadline is near.
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

    /// A heartbeat failed or is late.
    pub(crate) fn put_at_risk(&self) {
        self.set_at_risk(true);
    }

    /// One has succeeded since.
    pub(crate) fn take_out_of_risk(&self) {
        self.set_at_risk(false);
    }

    fn set_at_risk(&self, is_at_risk: bool) {
        if self.is_at_risk.swap(is_at_risk, Ordering::SeqCst) != is_at_risk {
            self.publish();
        }
    }

    /// Passes the state on to whoever follows it. Wakers run here: never under the lock.
    fn publish(&self) {
        let Some(state) = self.signals().state.clone() else { return };
        // Looked up under the channel's own lock: of two that publish, the later has the later state.
        state.send_if_modified(|published| {
            let current = self.noticed_state();
            std::mem::replace(published, current) != current
        });
    }

    /// The state as far as anybody has noticed. Only looks.
    fn noticed_state(&self) -> LeaseState {
        match ending_of(self.word.load(Ordering::SeqCst)) {
            Some(ending) => ending.into(),
            None if self.is_at_risk.load(Ordering::SeqCst) => LeaseState::AtRisk,
            None => LeaseState::Held,
        }
    }

    pub(crate) fn state(&self) -> watch::Receiver<LeaseState> {
        // A passed deadline ends the lease here.
        self.ending();
        let receiver = {
            let mut signals = self.signals();
            let new = || watch::Sender::new(self.noticed_state());
            signals.state.get_or_insert_with(new).subscribe()
        };
        // An ending between the look at the word and the lock found no sender.
        self.publish();
        receiver
    }

    pub(crate) fn work(&self) -> CancellationToken {
        let ended = self.ending().is_some();
        let mut signals = self.signals();
        if ended || signals.winding_down {
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            return cancelled;
        }
        signals.work.get_or_insert_with(CancellationToken::new).child_token()
    }

    /// The turn in the queue, for whoever ends it.
    pub(crate) fn take_turn(&self) -> Option<Turn> {
        self.signals().turn.take()
    }

    /// Keeps the turn until the lease ends; a lease that has ended lets it go at once.
    pub(crate) fn keep_turn(&self, turn: Turn) {
        self.signals().turn = Some(turn);
        if let Some(Ending::Lost(_)) = self.ending() {
            drop(self.take_turn());
        }
    }

    /// Numbers the next heartbeat after `beat`.
    pub(crate) fn continue_beats(&self, beat: Beat) {
        self.beats.fetch_max(beat.get(), Ordering::SeqCst);
    }

    /// The number of the next heartbeat, larger than that of every one before; `None` once the
    /// last one has its number.
    pub(crate) fn next_beat(&self) -> Option<Beat> {
        let next = |beats: u64| (beats & LAST == 0).then(|| beats + 1);
        let before = self.beats.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()?;
        Some(Beat::new(before).next())
    }

    /// The number of the last heartbeat, or of its repetition: no other comes after it.
    pub(crate) fn last_beat(&self) -> Beat {
        self.beats.fetch_or(LAST, Ordering::SeqCst);
        Beat::new(self.beats.fetch_add(1, Ordering::SeqCst) & !LAST).next()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn signals(&self) -> MutexGuard<'_, Signals> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Ending> for LeaseState {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Released => Self::Released,
            Ending::Lost(cause) => Self::Lost(cause),
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &self.grant.key)
            .field("lessee", &self.grant.lessee)
            .field("token", &self.grant.token)
            .field("ending", &ending_of(self.word.load(Ordering::SeqCst)))
            .finish_non_exhaustive()
    }
}

// No deadline is this early: clocks begin a day before the process does, or at least a ttl.
/// Marks the number of heartbeats when no more may be sent.
const LAST: u64 = 1 << 63;
const RELEASED: u64 = 0;
const EXPIRED: u64 = 1;
const REVOKED: u64 = 2;
const SUPERSEDED: u64 = 3;
const ABANDONED: u64 = 4;

fn word_of(deadline: Moment) -> u64 {
    deadline.as_nanos().max(ABANDONED + 1)
}

fn word_of_ending(ending: Ending) -> u64 {
    match ending {
        Ending::Released => RELEASED,
        Ending::Lost(LossCause::Expired) => EXPIRED,
        Ending::Lost(LossCause::Revoked) => REVOKED,
        Ending::Lost(LossCause::Superseded) => SUPERSEDED,
        Ending::Lost(LossCause::Abandoned) => ABANDONED,
    }
}

fn ending_of(word: u64) -> Option<Ending> {
    match word {
        RELEASED => Some(Ending::Released),
        EXPIRED => Some(Ending::Lost(LossCause::Expired)),
        REVOKED => Some(Ending::Lost(LossCause::Revoked)),
        SUPERSEDED => Some(Ending::Lost(LossCause::Superseded)),
        ABANDONED => Some(Ending::Lost(LossCause::Abandoned)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Wake, Waker};
    use std::thread;

    use super::*;
    use crate::clock::SkewedClock;
    use crate::grant::Claim;
    use crate::nonce::Nonce;
    use crate::token::FencingToken;

    const MINUTE: Duration = Duration::from_secs(60);

    fn hold() -> (Hold, Arc<SkewedClock>) {
        let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
        let (key, lessee) = ("key".parse().unwrap(), "lessee".parse().unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), MINUTE);
        let grant = claim.granted(FencingToken::new(1).unwrap());
        let now = clock.now();
        let shared = Arc::clone(&clock) as Arc<dyn Clock>;
        (Hold::new(0, grant, shared, now, now + MINUTE), clock)
    }

    #[test]
    fn what_has_ended_is_not_extended() {
        let (hold, clock) = hold();
        hold.end(Ending::Lost(LossCause::Revoked));

        let extended = hold.extend(clock.now() + MINUTE * 2, clock.now());

        assert_eq!(extended, Err(Ending::Lost(LossCause::Revoked)));
        assert_eq!(hold.ending(), Some(Ending::Lost(LossCause::Revoked)));
    }

    #[test]
    fn a_deadline_that_has_passed_is_not_moved() {
        let (hold, clock) = hold();
        clock.leap(MINUTE);

        let extended = hold.extend(clock.now() + MINUTE, clock.now());

        assert_eq!(extended, Err(Ending::Lost(LossCause::Expired)));
    }

    #[test]
    fn the_first_ending_stays() {
        let (hold, _clock) = hold();
        hold.end(Ending::Released);
        hold.end(Ending::Lost(LossCause::Superseded));

        assert_eq!(hold.ending(), Some(Ending::Released));
    }

    #[test]
    fn lease_is_not_released_after_its_deadline() {
        for ending in [Ending::Released, Ending::Lost(LossCause::Abandoned)] {
            let (hold, clock) = hold();
            clock.leap(MINUTE);

            assert_eq!(hold.end(ending), Ending::Lost(LossCause::Expired));
        }
    }

    #[test]
    fn stores_cause_of_a_loss_is_kept_after_the_deadline() {
        let (hold, clock) = hold();
        clock.leap(MINUTE);

        let ended = hold.end(Ending::Lost(LossCause::Superseded));

        assert_eq!(ended, Ending::Lost(LossCause::Superseded));
    }

    #[test]
    fn an_extension_never_shortens() {
        let (hold, clock) = hold();
        let before = hold.deadline();

        hold.extend(clock.now(), clock.now()).unwrap();

        assert_eq!(hold.deadline(), before);
    }

    /// Looks at the state whenever it is woken.
    struct Looks(Arc<Hold>);

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            drop(self.0.state());
        }
    }

    #[test]
    fn waker_may_look_at_the_state() {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let hold = Arc::new(hold().0);
            let waker = Waker::from(Arc::new(Looks(Arc::clone(&hold))));
            let mut context = Context::from_waker(&waker);
            let mut state = hold.state();
            {
                let mut changed = pin!(state.changed());
                assert!(changed.as_mut().poll(&mut context).is_pending());
                hold.put_at_risk();
            }
            state.mark_unchanged();
            {
                let mut changed = pin!(state.changed());
                assert!(changed.as_mut().poll(&mut context).is_pending());
                hold.end(Ending::Released);
            }
            done.send(()).unwrap();
        });

        // A deadlock would last for ever.
        is_done.recv_timeout(MINUTE).unwrap();
    }

    #[test]
    fn no_heartbeat_comes_after_the_last() {
        let (hold, _clock) = hold();
        assert_eq!(hold.next_beat(), Some(Beat::new(1)));

        assert_eq!(hold.last_beat(), Beat::new(2));
        assert_eq!(hold.next_beat(), None);
        assert_eq!(hold.last_beat(), Beat::new(3));
    }
}
