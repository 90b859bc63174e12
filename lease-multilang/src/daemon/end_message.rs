//! Selects the message that reports the end of a shard or of its lease to a child.
//!
//! A child's checkpoints show whether it speaks the protocol's first generation. No message shows whether it
//! speaks the second. Children of these generations do not know `shardEnded` and `leaseLost`, and exit when
//! they read such a message. Each restarted child would exit again. So after such a failure, the next child
//! gets a message of the other kind.

use parking_lot::Mutex;

use crate::protocol::{Generation, ShutdownReason, ToChild};

/// The kind of message that reports the end of a shard or of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EndMessage {
    /// `shardEnded` and `leaseLost`.
    #[default]
    Current,
    /// `shutdown`, with the reason `TERMINATE` or `ZOMBIE`.
    Shutdown,
}

/// Remembers which end message the children of an application understand.
#[derive(Debug, Default)]
pub(super) struct EndMessages(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    next: EndMessage,
    /// Whether a child has answered `next`. Then a failure may have another cause, and `next` stays. Only two
    /// failures in a row show that the children do not know the message.
    was_answered: bool,
}

impl EndMessages {
    /// Returns the message for a child whose messages have shown `generation`.
    pub(super) fn next(&self, generation: Generation) -> EndMessage {
        match generation {
            Generation::G0 => EndMessage::Shutdown,
            Generation::G1 | Generation::G2 => self.known(|known| known.next),
        }
    }

    /// Records that a child has answered `message`.
    pub(super) fn answered(&self, message: EndMessage) {
        self.known(|known| *known = Known { next: message, was_answered: true });
    }

    /// Records that a child has failed instead of answering `message`. Returns the message for the next
    /// child.
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
    /// Returns the message to send in place of `message`; `None` to send `message` itself.
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
        // A second child had got its message before the first child failed. Its failure changes nothing.
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
