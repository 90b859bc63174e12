//! The commands that leases send to their heartbeater.
//!
//! Only a command that cannot wait wakes the heartbeater. A wake-up costs more than the rest of a
//! short lease, because another thread has to start.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;

use crate::clock::Moment;
use crate::heartbeat::ending::Ending;
use crate::heartbeat::lease_cell::LeaseCell;
use crate::heartbeat::release::Release;

#[derive(Debug)]
pub(crate) enum Command {
    Add(Arc<LeaseCell>),
    /// Sent when the lease has ended, and its key need not be released.
    Remove(Arc<LeaseCell>),
    Release(Release),
}

#[derive(Debug, Clone)]
pub(crate) struct CommandSender {
    queue: Arc<CommandQueue>,
    wake: mpsc::Sender<()>,
    first_look: Duration,
}

pub(crate) struct CommandReceiver {
    queue: Arc<CommandQueue>,
    wake: mpsc::Receiver<()>,
    first_look: Duration,
    polls_again: Option<Moment>,
}

#[derive(Debug)]
struct CommandQueue(Mutex<Queued>);

#[derive(Debug)]
struct Queued {
    commands: VecDeque<Command>,
    /// When the heartbeater polls the queue without being woken; `None` if never.
    polled_at: Option<Moment>,
}

pub(crate) fn command_queue(first_look: Duration) -> (CommandSender, CommandReceiver) {
    let queued = Queued { commands: VecDeque::new(), polled_at: None };
    let queue = Arc::new(CommandQueue(Mutex::new(queued)));
    // One wake-up is enough for any number of commands.
    let (wake, woken) = mpsc::channel(1);
    let receiver =
        CommandReceiver { queue: Arc::clone(&queue), wake: woken, first_look, polls_again: None };
    (CommandSender { queue, wake, first_look }, receiver)
}

impl CommandSender {
    /// Never blocks or fails, so that `Drop` may call it. After the end of the heartbeater, the
    /// command is dropped, because its runtime has ended.
    pub(crate) fn send(&self, command: Command) {
        let mut queued = self.queue.queued();
        // Checked under the lock that `close` takes: a command that is queued after `close` would
        // stay in the queue for ever.
        if self.wake.is_closed() {
            drop(queued);
            return drop(command);
        }
        let can_wait = match &command {
            Command::Add(cell) => {
                let first_look = cell.granted_at + self.first_look;
                queued.polled_at.is_some_and(|polled_at| polled_at <= first_look)
            }
            // A lost lease is reported at once. If no poll is planned, only a wake-up empties the queue.
            Command::Remove(cell) => {
                queued.polled_at.is_some() && cell.ending() == Some(Ending::Released)
            }
            Command::Release(_) => false,
        };
        queued.commands.push_back(command);
        let is_long = queued.commands.len() >= LONG;
        drop(queued);
        if !can_wait || is_long {
            // A full channel means that a wake-up is pending already.
            let _ = self.wake.try_send(());
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.wake.is_closed()
    }
}

impl CommandReceiver {
    /// Commands come in bursts. After a command, the heartbeater polls again in time for every
    /// lease that is granted from now on, so these leases need not wake the heartbeater.
    pub(crate) fn take(&mut self, commands: &mut Vec<Command>, limit: usize, now: Moment) {
        let mut queued = self.queue.queued();
        if self.polls_again.is_none_or(|moment| moment <= now) {
            let is_busy = !queued.commands.is_empty();
            self.polls_again = is_busy.then(|| now + self.first_look);
        }
        let count = queued.commands.len().min(limit);
        commands.extend(queued.commands.drain(..count));
        if queued.commands.is_empty() {
            queued.commands.shrink_to(2 * LONG);
        }
    }

    /// Announces when the heartbeater next polls the queue without being woken. Senders rely on
    /// this moment from here on. `earliest` is when other work is due. Returns the moment, and
    /// whether the queue is empty.
    pub(crate) fn announce_poll(&self, earliest: Option<Moment>) -> (Option<Moment>, bool) {
        let polled_at = earliest.into_iter().chain(self.polls_again).min();
        let mut queued = self.queue.queued();
        queued.polled_at = polled_at;
        (polled_at, queued.commands.is_empty())
    }

    pub(crate) async fn woken(&mut self) -> bool {
        self.wake.recv().await.is_some()
    }

    /// After this call, the queue drops new commands.
    pub(crate) fn close(&mut self) -> VecDeque<Command> {
        self.wake.close();
        std::mem::take(&mut self.queue.queued().commands)
    }
}

impl CommandQueue {
    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.0.lock()
    }
}

/// A queue of this length wakes the heartbeater.
const LONG: usize = 256;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::{Clock, SkewedClock};
    use crate::lost::LossCause;
    use crate::store::grant::Claim;
    use crate::store::nonce::Nonce;
    use crate::token::FencingToken;

    const SECOND: Duration = Duration::from_secs(1);

    fn cell() -> Arc<LeaseCell> {
        let clock: Arc<dyn Clock> = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
        let (key, lessee) = ("key".parse().unwrap(), "lessee".parse().unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), SECOND * 60);
        let now = clock.now();
        let grant = claim.granted(FencingToken::new(1).unwrap());
        Arc::new(LeaseCell::new(0, grant, clock, now, now + SECOND * 60))
    }

    #[test]
    fn heartbeater_that_would_poll_too_late_is_woken() {
        for sleeps_until in [None, Some(SECOND * 11)] {
            let (sender, mut receiver) = command_queue(SECOND * 10);
            let cell = cell();
            assert!(receiver.announce_poll(sleeps_until.map(|length| cell.granted_at + length)).1);

            sender.send(Command::Add(cell));

            assert_eq!(receiver.woken().now_or_never(), Some(true), "{sleeps_until:?}");
        }
    }

    #[test]
    fn heartbeater_that_polls_in_time_is_not_woken() {
        let (sender, mut receiver) = command_queue(SECOND * 10);
        let cell = cell();
        let now = cell.granted_at;
        assert!(receiver.announce_poll(Some(now + SECOND * 10)).1);

        sender.send(Command::Add(Arc::clone(&cell)));
        cell.end(Ending::Released);
        sender.send(Command::Remove(cell));

        assert_eq!(receiver.woken().now_or_never(), None);
        assert!(!receiver.announce_poll(None).1);
        let mut commands = Vec::new();
        receiver.take(&mut commands, 1, now);
        assert!(matches!(*commands, [Command::Add(_)]), "the oldest should be first: {commands:?}");
        receiver.take(&mut commands, 9, now);
        assert_eq!(commands.len(), 2);
    }

    #[test]
    fn removal_without_a_planned_poll_wakes_heartbeater() {
        let (sender, mut receiver) = command_queue(SECOND * 10);
        let cell = cell();
        cell.end(Ending::Released);
        assert!(receiver.announce_poll(None).1);

        sender.send(Command::Remove(cell));

        assert_eq!(receiver.woken().now_or_never(), Some(true));
    }

    #[test]
    fn busy_queue_is_polled_until_no_command_comes() {
        let (sender, mut receiver) = command_queue(SECOND * 10);
        let (first, second) = (cell(), cell());
        let now = first.granted_at;
        assert_eq!(receiver.announce_poll(None), (None, true));
        let mut commands = Vec::new();

        sender.send(Command::Add(first));
        assert_eq!(receiver.woken().now_or_never(), Some(true));
        receiver.take(&mut commands, 9, now);
        // The queue is polled first: the second lease's heartbeat may be due before 19 s.
        let (polled_at, is_empty) = receiver.announce_poll(Some(now + SECOND * 19));
        assert_eq!((polled_at, is_empty), (Some(now + SECOND * 10), true));
        sender.send(Command::Add(second));
        assert_eq!(receiver.woken().now_or_never(), None);

        receiver.take(&mut commands, 9, now + SECOND * 10);
        assert_eq!(receiver.announce_poll(None), (Some(now + SECOND * 20), true));
        receiver.take(&mut commands, 9, now + SECOND * 20);
        assert_eq!(receiver.announce_poll(None), (None, true));
        assert_eq!(commands.len(), 2);
    }

    #[test]
    fn loss_wakes_heartbeater() {
        let (sender, mut receiver) = command_queue(SECOND * 10);
        let cell = cell();
        cell.end(Ending::Lost(LossCause::Abandoned));
        assert!(receiver.announce_poll(Some(cell.granted_at)).1);

        sender.send(Command::Remove(cell));

        assert_eq!(receiver.woken().now_or_never(), Some(true));
    }

    #[test]
    fn long_queue_wakes_heartbeater() {
        let (sender, mut receiver) = command_queue(SECOND * 10);
        let cell = cell();
        assert!(receiver.announce_poll(Some(cell.granted_at)).1);

        for _ in 1..LONG {
            sender.send(Command::Add(Arc::clone(&cell)));
        }
        assert_eq!(receiver.woken().now_or_never(), None);
        sender.send(Command::Add(cell));

        assert_eq!(receiver.woken().now_or_never(), Some(true));
    }

    #[test]
    fn command_after_close_is_dropped() {
        let (sender, mut receiver) = command_queue(SECOND * 10);
        let (first, late) = (cell(), cell());
        sender.send(Command::Add(first));

        assert_eq!(receiver.close().len(), 1);
        sender.send(Command::Add(Arc::clone(&late)));

        assert!(sender.is_closed());
        assert_eq!(Arc::strong_count(&late), 1, "the queue should have dropped the command");
    }
}
