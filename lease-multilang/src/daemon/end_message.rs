//! The message by which the children of an application learn that a shard has ended or is lost.
//!
//! A child's checkpoints show whether it speaks the protocol's first generation. Nothing shows whether it
//! speaks the second. Children of both do not know `shardEnded` and `leaseLost`, and exit when they read
//! one. The next child would exit the same way, without end. So after a failure, the next child gets the
//! other message.

use parking_lot::Mutex;

use crate::protocol::{Generation, ShutdownReason, ToChild};

/// The kind of message that reports an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EndMessage {
    /// `shardEnded` and `leaseLost`.
    #[default]
    Current,
    /// `shutdown`, with the reason `TERMINATE` or `ZOMBIE`.
    Shutdown,
}

/// What is known of the children of an application.
#[derive(Debug, Default)]
pub(super) struct EndMessages(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    next: EndMessage,
    /// Whether a child has answered it. One failure afterwards has another cause; two in a row do not.
    was_answered: bool,
}

impl EndMessages {
    /// Returns the message for a child that has shown to be of `generation`.
    pub(super) fn next(&self, generation: Generation) -> EndMessage {
        match generation {
            Generation::G0 => EndMessage::Shutdown,
            Generation::G1 | Generation::G2 => self.known(|known| known.next),
        }
    }

    /// Notes that a child has answered `message`.
    pub(super) fn answered(&self, message: EndMessage) {
        self.known(|known| *known = Known { next: message, was_answered: true });
    }

    /// Notes that a child has failed instead of an answer. Returns the message for the next child.
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
    fn failed_message_alternates_until_one_is_answered() {
        let messages = EndMessages::default();

        assert_eq!(messages.next(Generation::G2), EndMessage::Current);
        assert_eq!(messages.failed(EndMessage::Current), EndMessage::Shutdown);
        // A second child at the same time.
        assert_eq!(messages.failed(EndMessage::Current), EndMessage::Shutdown);
        assert_eq!(messages.failed(EndMessage::Shutdown), EndMessage::Current, "it only crashed");
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
    fn child_of_the_first_generation_always_gets_a_shutdown() {
        assert_eq!(EndMessages::default().next(Generation::G0), EndMessage::Shutdown);
    }
}
