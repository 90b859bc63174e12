//! Selects the message that reports the end of a shard or of its lease to a child.
//!
//! Children of the first two generations exit when they read `shardEnded` or `leaseLost`, and their
//! generation may be unknown. So after a failure, the next child gets a message of the other kind.

use parking_lot::Mutex;

use crate::protocol::{Generation, ShutdownReason, ToChild};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EndMessage {
    /// `shardEnded` and `leaseLost`.
    #[default]
    Current,
    /// `shutdown`, with the reason `TERMINATE` or `ZOMBIE`.
    Shutdown,
}

#[derive(Debug, Default)]
pub(super) struct EndMessages(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    next: EndMessage,
    /// Then a failure may have another cause, and only two failures in a row change `next`.
    was_answered: bool,
}

impl EndMessages {
    /// `generation` is what the child's messages have shown.
    pub(super) fn next(&self, generation: Generation) -> EndMessage {
        match generation {
            Generation::G0 => EndMessage::Shutdown,
            Generation::G1 | Generation::G2 => self.known(|known| known.next),
        }
    }

    pub(super) fn answered(&self, message: EndMessage) {
        self.known(|known| *known = Known { next: message, was_answered: true });
    }

    /// A child has failed instead of answering `message`. Returns the message for the next child.
    pub(super) fn failed(&self, message: EndMessage) -> EndMessage {
        self.known(|known| {
            if known.was_answered && known.next == message {
                known.was_answered = false;
            } else {
                known.next = message.other();
            }
            known.next
        })
    }

    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.0.lock())
    }
}

impl EndMessage {
    /// Returns `None` if `message` itself is right.
    pub(super) fn in_place_of(self, message: &ToChild) -> Option<ToChild> {
        let reason = match (self, message) {
            (Self::Shutdown, ToChild::ShardEnded) => ShutdownReason::Terminate,
            (Self::Shutdown, ToChild::LeaseLost) => ShutdownReason::Zombie,
            _ => return None,
        };
        Some(ToChild::Shutdown(reason))
    }

    fn other(self) -> Self {
        match self {
            Self::Current => Self::Shutdown,
            Self::Shutdown => Self::Current,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_messages_alternate_until_a_child_answers() {
        let messages = EndMessages::default();

        assert_eq!(messages.next(Generation::G2), EndMessage::Current);
        assert_eq!(messages.failed(EndMessage::Current), EndMessage::Shutdown);
        // A second child had got its message before the first child failed.
        assert_eq!(messages.failed(EndMessage::Current), EndMessage::Shutdown);
        assert_eq!(messages.failed(EndMessage::Shutdown), EndMessage::Current, "kinds alternate");
        assert_eq!(messages.failed(EndMessage::Current), EndMessage::Shutdown);
        messages.answered(EndMessage::Shutdown);
        assert_eq!(messages.next(Generation::G2), EndMessage::Shutdown);
    }

    #[test]
    fn answered_message_changes_after_two_failures_in_a_row() {
        let messages = EndMessages::default();
        messages.answered(EndMessage::Current);

        assert_eq!(messages.failed(EndMessage::Current), EndMessage::Current);
        assert_eq!(messages.failed(EndMessage::Current), EndMessage::Shutdown);
    }

    #[test]
    fn first_generation_always_gets_a_shutdown() {
        assert_eq!(EndMessages::default().next(Generation::G0), EndMessage::Shutdown);
    }
}
