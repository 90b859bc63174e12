//! In which words the children of an application are told of their ends.
//!
//! A child shows by its checkpoints whether it speaks the protocol's first generation, and nothing
//! shows whether it speaks the second. Both know no `shardEnded` and no `leaseLost`, and end at such
//! a word. Each would be told the same again, without end: so what has failed is told in the other
//! words the next time.

use std::sync::{Mutex, PoisonError};

use crate::multilang::{Generation, ShutdownReason, ToChild};

/// What an end is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Words {
    /// `shardEnded` and `leaseLost`.
    #[default]
    OfEach,
    /// `shutdown`, with a reason: `TERMINATE` or `ZOMBIE`.
    Shutdown,
}

/// What is known of all children of an application.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    next: Words,
    /// Whether a child has answered them: then one that fails has failed for another reason, unless
    /// the next does, too.
    are_seen_to_work: bool,
}

impl Ends {
    /// The words for a child that has shown to be of `generation`.
    pub(super) fn next(&self, generation: Generation) -> Words {
        match generation {
            Generation::G0 => Words::Shutdown,
            Generation::G1 | Generation::G2 => self.known(|known| known.next),
        }
    }

    /// A child has answered them.
    pub(super) fn worked(&self, words: Words) {
        self.known(|known| *known = Known { next: words, are_seen_to_work: true });
    }

    /// A child has ended or failed instead of an answer; says in which words the next is told.
    pub(super) fn failed(&self, words: Words) -> Words {
        self.known(|known| {
            if known.are_seen_to_work && known.next == words {
                known.are_seen_to_work = false;
            } else {
                known.next = words.other();
            }
            known.next
        })
    }

    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Words {
    /// `message` in these words, where they are others than its own.
    pub(super) fn say(self, message: &ToChild) -> Option<ToChild> {
        let reason = match (self, message) {
            (Self::Shutdown, ToChild::ShardEnded) => ShutdownReason::Terminate,
            (Self::Shutdown, ToChild::LeaseLost) => ShutdownReason::Zombie,
            _ => return None,
        };
        Some(ToChild::Shutdown(reason))
    }

    fn other(self) -> Self {
        match self {
            Self::OfEach => Self::Shutdown,
            Self::Shutdown => Self::OfEach,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_failed_is_told_in_the_other_words_by_turns_until_some_work() {
        let ends = Ends::default();

        assert_eq!(ends.next(Generation::G2), Words::OfEach);
        assert_eq!(ends.failed(Words::OfEach), Words::Shutdown);
        // A second child of the same moment.
        assert_eq!(ends.failed(Words::OfEach), Words::Shutdown);
        assert_eq!(ends.failed(Words::Shutdown), Words::OfEach, "it had crashed, no more");
        assert_eq!(ends.failed(Words::OfEach), Words::Shutdown);
        ends.worked(Words::Shutdown);
        assert_eq!(ends.next(Generation::G2), Words::Shutdown);
    }

    #[test]
    fn words_that_work_are_given_up_only_when_two_children_in_a_row_fail_at_them() {
        let ends = Ends::default();
        ends.worked(Words::OfEach);

        assert_eq!(ends.failed(Words::OfEach), Words::OfEach);
        assert_eq!(ends.failed(Words::OfEach), Words::Shutdown);
    }

    #[test]
    fn a_child_that_has_shown_the_first_generation_is_always_told_of_a_shutdown() {
        assert_eq!(Ends::default().next(Generation::G0), Words::Shutdown);
    }
}
