//! Sequence numbers of a simulated stream.

use crate::position::SequenceNumber;

/// The index of a sequence number in the stream, from 1. All shards share one sequence, so a child's numbers
/// are larger than its parents' numbers, as in AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

impl Number {
    pub(super) const FIRST: Self = Self(1);

    #[must_use]
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(super) fn of(sequence: &SequenceNumber) -> Option<Self> {
        sequence.as_str().strip_prefix(HEAD).and_then(Self::parse)
    }

    pub(super) fn parse(digits: &str) -> Option<Self> {
        if digits.len() != DIGITS {
            return None;
        }
        digits.parse().ok().map(Self)
    }

    #[expect(clippy::expect_used, reason = "56 digits are a number")]
    pub(super) fn sequence(self) -> SequenceNumber {
        format!("{HEAD}{self}").parse().expect("a number")
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:0DIGITS$}", self.0)
    }
}

/// With these first digits, each number is as long as in AWS.
const HEAD: &str = "496500000000000000000000000000000000";

const DIGITS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_number_parses_to_its_index() {
        let number = Number::FIRST.next();

        assert_eq!(Number::of(&number.sequence()), Some(number));
        assert!(number.sequence() > Number::FIRST.sequence());
    }

    #[test]
    fn numbers_of_other_streams_do_not_parse() {
        let other = "49590338271490256608559692538361571095921575989136588898";

        assert_eq!(Number::of(&"7".parse().unwrap()), None);
        assert_eq!(Number::of(&other.parse().unwrap()), None);
    }
}
