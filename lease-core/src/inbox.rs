//! What leases tell their heartbeater, who is woken only for what cannot wait.
//!
//! A lease that is held for a moment would otherwise wake it twice, which costs more than the rest of
//! the lease: another thread that has to start, beside those that have work to do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::clock::Moment;
use crate::hold::{Ending, Hold};
use crate::release::Release;

/// What leases ask of their heartbeater.
#[derive(Debug)]
pub(crate) enum Command {
    /// Keep this lease alive.
    Keep(Arc<Hold>),
    /// Stop keeping it alive: it has ended, and is not to be given back.
    Leave(Arc<Hold>),
    /// Stop keeping it alive, and give it back.
    Release(Release),
}

/// Where leases tell it.
#[derive(Debug, Clone)]
pub(crate) struct Teller {
    pile: Arc<Pile>,
    bell: mpsc::Sender<()>,
    /// No lease has to be looked at sooner after its grant.
    first_look: Duration,
}

/// Where the heartbeater hears of it.
pub(crate) struct Inbox {
    pile: Arc<Pile>,
    bell: mpsc::Receiver<()>,
    first_look: Duration,
    /// When it is looked at again since something came.
    looks_again: Option<Moment>,
}

#[derive(Debug)]
struct Pile(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    commands: VecDeque<Command>,
    /// When the heartbeater looks here by itself; `None` where it would not.
    looks_at: Option<Moment>,
}

/// For leases of which none has to be looked at within `first_look` after its grant.
pub(crate) fn inbox(first_look: Duration) -> (Teller, Inbox) {
    let waiting = Waiting { commands: VecDeque::new(), looks_at: None };
    let pile = Arc::new(Pile(Mutex::new(waiting)));
    // One ring is as good as many.
    let (bell, rung) = mpsc::channel(1);
    let inbox = Inbox { pile: Arc::clone(&pile), bell: rung, first_look, looks_again: None };
    (Teller { pile, bell, first_look }, inbox)
}

impl Teller {
    /// Never blocks and never fails loudly, so that `Drop` may call it: where the heartbeater
    /// is gone with its runtime, so is everything that it could have done.
    pub(crate) fn tell(&self, command: Command) {
        let mut waiting = self.pile.waiting();
        // Under the lock, under which the last look was taken: what comes now would lie here for ever.
        if self.bell.is_closed() {
            drop(waiting);
            return drop(command);
        }
        let can_wait = match &command {
            Command::Keep(hold) => {
                let first_look = hold.granted_at + self.first_look;
                waiting.looks_at.is_some_and(|looks_at| looks_at <= first_look)
            }
            // One that was lost is to be told of; and if nobody looks here, it would lie here.
            Command::Leave(hold) => {
                waiting.looks_at.is_some() && hold.ending() == Some(Ending::Released)
            }
            Command::Release(_) => false,
        };
        waiting.commands.push_back(command);
        let is_high = waiting.commands.len() >= HIGH;
        drop(waiting);
        if !can_wait || is_high {
            // Full: it was rung already.
            let _ = self.bell.try_send(());
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.bell.is_closed()
    }
}

impl Inbox {
    /// Moves what has come by `now` to `commands`, the oldest first, and no more than `limit`.
    ///
    /// Where something comes, more will: a look in time for all that is granted from now on spares
    /// each of them a ring.
    pub(crate) fn take(&mut self, commands: &mut Vec<Command>, limit: usize, now: Moment) {
        let mut waiting = self.pile.waiting();
        if self.looks_again.is_none_or(|moment| moment <= now) {
            let is_busy = !waiting.commands.is_empty();
            self.looks_again = is_busy.then(|| now + self.first_look);
        }
        let count = waiting.commands.len().min(limit);
        commands.extend(waiting.commands.drain(..count));
        if waiting.commands.is_empty() {
            waiting.commands.shrink_to(2 * HIGH);
        }
    }

    /// When this is looked at next, whoever rings, where something else is due at `earliest`; and
    /// whether nothing has come meanwhile. Whoever comes from here on relies on that look.
    pub(crate) fn next_look(&self, earliest: Option<Moment>) -> (Option<Moment>, bool) {
        let looks_at = earliest.into_iter().chain(self.looks_again).min();
        let mut waiting = self.pile.waiting();
        waiting.looks_at = looks_at;
        (looks_at, waiting.commands.is_empty())
    }

    /// Completes when something has come that cannot wait; `false` once nothing can come any more.
    pub(crate) async fn rung(&mut self) -> bool {
        self.bell.recv().await.is_some()
    }

    /// The last of what has come: nothing is taken in from here on.
    pub(crate) fn close(&mut self) -> VecDeque<Command> {
        self.bell.close();
        std::mem::take(&mut self.pile.waiting().commands)
    }
}

impl Pile {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So much may lie here before it is worth a ring.
const HIGH: usize = 256;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::{Clock, SkewedClock};
    use crate::grant::Claim;
    use crate::lost::LossCause;
    use crate::nonce::Nonce;
    use crate::token::FencingToken;

    const SECOND: Duration = Duration::from_secs(1);

    fn hold() -> Arc<Hold> {
        let clock: Arc<dyn Clock> = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
        let (key, lessee) = ("key".parse().unwrap(), "lessee".parse().unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), SECOND * 60);
        let now = clock.now();
        let grant = claim.granted(FencingToken::new(1).unwrap());
        Arc::new(Hold::new(0, grant, clock, now, now + SECOND * 60))
    }

    #[test]
    fn who_would_not_look_in_time_is_rung_for() {
        for sleeps_until in [None, Some(SECOND * 11)] {
            let (teller, mut inbox) = inbox(SECOND * 10);
            let hold = hold();
            assert!(inbox.next_look(sleeps_until.map(|length| hold.granted_at + length)).1);

            teller.tell(Command::Keep(hold));

            assert_eq!(inbox.rung().now_or_never(), Some(true), "{sleeps_until:?}");
        }
    }

    #[test]
    fn who_looks_in_time_is_not_rung_for_and_finds_it() {
        let (teller, mut inbox) = inbox(SECOND * 10);
        let hold = hold();
        let now = hold.granted_at;
        assert!(inbox.next_look(Some(now + SECOND * 10)).1);

        teller.tell(Command::Keep(Arc::clone(&hold)));
        hold.end(Ending::Released);
        teller.tell(Command::Leave(hold));

        assert_eq!(inbox.rung().now_or_never(), None);
        assert!(!inbox.next_look(None).1);
        let mut commands = Vec::new();
        inbox.take(&mut commands, 1, now);
        assert!(matches!(*commands, [Command::Keep(_)]), "the oldest first: {commands:?}");
        inbox.take(&mut commands, 9, now);
        assert_eq!(commands.len(), 2);
    }

    #[test]
    fn what_is_left_where_nobody_looks_is_rung_for() {
        let (teller, mut inbox) = inbox(SECOND * 10);
        let hold = hold();
        hold.end(Ending::Released);
        assert!(inbox.next_look(None).1);

        teller.tell(Command::Leave(hold));

        assert_eq!(inbox.rung().now_or_never(), Some(true));
    }

    #[test]
    fn where_one_has_come_the_next_is_not_rung_for_until_nothing_came_for_a_while() {
        let (teller, mut inbox) = inbox(SECOND * 10);
        let (first, second) = (hold(), hold());
        let now = first.granted_at;
        assert_eq!(inbox.next_look(None), (None, true));
        let mut commands = Vec::new();

        teller.tell(Command::Keep(first));
        assert_eq!(inbox.rung().now_or_never(), Some(true));
        inbox.take(&mut commands, 9, now);
        // Its first heartbeat is due later than the second's may be.
        let (looks_at, is_empty) = inbox.next_look(Some(now + SECOND * 19));
        assert_eq!((looks_at, is_empty), (Some(now + SECOND * 10), true));
        teller.tell(Command::Keep(second));
        assert_eq!(inbox.rung().now_or_never(), None);

        inbox.take(&mut commands, 9, now + SECOND * 10);
        assert_eq!(inbox.next_look(None), (Some(now + SECOND * 20), true));
        inbox.take(&mut commands, 9, now + SECOND * 20);
        assert_eq!(inbox.next_look(None), (None, true));
        assert_eq!(commands.len(), 2);
    }

    #[test]
    fn a_loss_is_rung_for() {
        let (teller, mut inbox) = inbox(SECOND * 10);
        let hold = hold();
        hold.end(Ending::Lost(LossCause::Abandoned));
        assert!(inbox.next_look(Some(hold.granted_at)).1);

        teller.tell(Command::Leave(hold));

        assert_eq!(inbox.rung().now_or_never(), Some(true));
    }

    #[test]
    fn a_high_pile_is_rung_for() {
        let (teller, mut inbox) = inbox(SECOND * 10);
        let hold = hold();
        assert!(inbox.next_look(Some(hold.granted_at)).1);

        for _ in 1..HIGH {
            teller.tell(Command::Keep(Arc::clone(&hold)));
        }
        assert_eq!(inbox.rung().now_or_never(), None);
        teller.tell(Command::Keep(hold));

        assert_eq!(inbox.rung().now_or_never(), Some(true));
    }

    #[test]
    fn what_comes_after_the_end_is_dropped() {
        let (teller, mut inbox) = inbox(SECOND * 10);
        let (first, late) = (hold(), hold());
        teller.tell(Command::Keep(first));

        assert_eq!(inbox.close().len(), 1);
        teller.tell(Command::Keep(Arc::clone(&late)));

        assert!(teller.is_closed());
        assert_eq!(Arc::strong_count(&late), 1, "it lies in the inbox");
    }
}
