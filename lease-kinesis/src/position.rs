//! Positions in a shard.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::invalid::InvalidText;

/// The number that Kinesis assigns to a record. Each record of a shard has a larger number than earlier
/// records.
///
/// Has up to [129](Self::MAX_DIGITS) decimal digits, as the [API
/// reference](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_Record.html) says. Compares as an
/// integer.
///
/// # Examples
///
/// ```
/// use lease_kinesis::SequenceNumber;
///
/// let nine: SequenceNumber = "9".parse()?;
/// let ten: SequenceNumber = "10".parse()?;
/// assert!(nine < ten, "as numbers, not as text");
/// # Ok::<_, lease_kinesis::InvalidText>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SequenceNumber(Arc<str>);

/// States how far a shard has been read.
///
/// Positions order as in the Kinesis Client Library: times, the oldest record, the newest record,
/// records by their numbers, the end of the shard.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(clippy::exhaustive_enums, reason = "the positions that Kinesis knows")]
pub enum Position {
    /// Reading starts with the first record that arrives at this time or later, in milliseconds since 1970.
    AtTimestamp(u64),
    /// Reading starts with the oldest record that the stream retains.
    TrimHorizon,
    /// Reading starts with the next record that arrives. This crate never writes this position to a table,
    /// because a restart at `Latest` skips records.
    Latest,
    /// All records up to and including this record have been read.
    Record(RecordNumber),
    /// A closed shard has been read to its end.
    ShardEnd,
}

/// Identifies a record by its sequence number and its index within an aggregate.
///
/// The records of an
/// [aggregate](https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md) share a
/// sequence number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "two numbers, as in each record and each row")]
pub struct RecordNumber {
    /// The number that Kinesis assigned.
    pub sequence: SequenceNumber,
    /// The index within an aggregate, from 0. A record outside of aggregates has 0.
    pub sub_sequence: u64,
}

/// Selects where reading starts in shards that no worker has read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_enums, reason = "the positions that Kinesis knows")]
pub enum InitialPosition {
    /// Starts with the records that arrive after the first worker's start, as in the Kinesis Client Library.
    /// The table stores the time of that start, so restarts skip no record. This is the default.
    #[default]
    Latest,
    /// Starts with the oldest record that the stream retains.
    TrimHorizon,
    /// Starts with the first record that arrived at this time or later, in milliseconds since 1970.
    AtTimestamp(u64),
}

impl InitialPosition {
    /// Reports whether the start time in a row contradicts this initial position. `now` is in milliseconds
    /// since 1970. Under [`Latest`](Self::Latest), a row may have any start time that is not in the future.
    pub(crate) fn is_overruled_by(self, row: &Position, now: u64) -> bool {
        let Position::AtTimestamp(at) = row else { return false };
        match self {
            Self::AtTimestamp(time) => *at != time,
            Self::TrimHorizon => true,
            Self::Latest => *at > now.saturating_add(CLOCKS_APART),
        }
    }
}

impl SequenceNumber {
    /// The largest number of digits that Kinesis documents.
    pub const MAX_DIGITS: usize = 129;

    /// Returns the digits, without leading zeros.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SequenceNumber {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let of_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !of_digits || text.len() > Self::MAX_DIGITS {
            return Err(InvalidText::new("sequence number", text, "1 to 129 decimal digits"));
        }
        let digits = text.trim_start_matches('0');
        Ok(Self(if digits.is_empty() { "0" } else { digits }.into()))
    }
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RecordNumber {
    /// Creates the number of a record that is not part of an aggregate.
    pub fn new(sequence: SequenceNumber) -> Self {
        Self { sequence, sub_sequence: 0 }
    }
}

impl fmt::Display for RecordNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.sequence)?;
        if self.sub_sequence > 0 {
            write!(f, "+{}", self.sub_sequence)?;
        }
        Ok(())
    }
}

impl fmt::Debug for RecordNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Position {
    /// Writes a position as the Kinesis Client Library does, but `AT_TIMESTAMP` with its time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtTimestamp(at) => write!(f, "AT_TIMESTAMP {at}"),
            Self::TrimHorizon => f.write_str("TRIM_HORIZON"),
            Self::Latest => f.write_str("LATEST"),
            Self::Record(number) => fmt::Display::fmt(number, f),
            Self::ShardEnd => f.write_str("SHARD_END"),
        }
    }
}

impl From<RecordNumber> for Position {
    fn from(number: RecordNumber) -> Self {
        Self::Record(number)
    }
}

/// The assumed maximum difference between two workers' clocks, in milliseconds.
const CLOCKS_APART: u64 = 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    fn sequence(text: &str) -> SequenceNumber {
        text.parse().unwrap()
    }

    fn record(text: &str, sub_sequence: u64) -> Position {
        Position::Record(RecordNumber { sequence: sequence(text), sub_sequence })
    }

    #[test]
    fn positions_order_from_times_to_shard_end() {
        let longest = "9".repeat(SequenceNumber::MAX_DIGITS);
        let in_order = [
            Position::AtTimestamp(0),
            Position::AtTimestamp(u64::MAX),
            Position::TrimHorizon,
            Position::Latest,
            record("0", 0),
            record("0", 1),
            record("9", 0),
            record("10", 0),
            record("10", u64::MAX),
            record("11", 0),
            record(&longest, u64::MAX),
            Position::ShardEnd,
        ];

        assert!(in_order.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn row_of_another_initial_position_is_recognized() {
        let (now, at) = (1_700_000_000_000, Position::AtTimestamp(1_600_000_000_000));
        let overruled =
            |initial: InitialPosition, row: &Position| initial.is_overruled_by(row, now);

        assert!(overruled(InitialPosition::AtTimestamp(1_500_000_000_000), &at));
        assert!(!overruled(InitialPosition::AtTimestamp(1_600_000_000_000), &at));
        assert!(overruled(InitialPosition::TrimHorizon, &at));
        assert!(!overruled(InitialPosition::Latest, &at), "this may be the first start's time");
        let never = Position::AtTimestamp(1_636_609_142_000_000);
        assert!(overruled(InitialPosition::Latest, &never));
        for read in [record("7", 0), Position::TrimHorizon, Position::ShardEnd] {
            assert!(!overruled(InitialPosition::AtTimestamp(5), &read), "{read}");
        }
    }

    #[test]
    fn leading_zeros_are_ignored() {
        assert_eq!(sequence("007"), sequence("7"));
        assert_eq!(sequence("007").as_str(), "7");
        assert_eq!(sequence("000").as_str(), "0");
        assert!(sequence("09") < sequence("10"));
    }

    #[test]
    fn sequence_number_has_1_to_129_digits() {
        assert_eq!(sequence(&"1".repeat(129)).as_str().len(), 129);
        for bad in ["", "-1", "+1", "1 ", "1e3", "٣", "LATEST", &"1".repeat(130)] {
            assert!(bad.parse::<SequenceNumber>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn record_number_displays_index_in_aggregate() {
        assert_eq!(record("7", 0).to_string(), "7");
        assert_eq!(record("7", 2).to_string(), "7+2");
    }

    fn compared(one: &str, other: &str) -> Ordering {
        format!("{one:0>129}").cmp(&format!("{other:0>129}"))
    }

    proptest! {
        #[test]
        fn numbers_compare_as_integers(one: u128, other: u128) {
            let (first, second) = (sequence(&one.to_string()), sequence(&other.to_string()));

            prop_assert_eq!(first.cmp(&second), one.cmp(&other));
        }

        #[test]
        fn numbers_of_any_length_compare_as_integers(one in "[0-9]{1,129}", other in "[0-9]{1,129}") {
            prop_assert_eq!(sequence(&one).cmp(&sequence(&other)), compared(&one, &other));
            prop_assert_eq!(sequence(&one) == sequence(&other), compared(&one, &other).is_eq());
        }

        #[test]
        fn displayed_number_parses_to_same_number(text in "[0-9]{1,129}") {
            prop_assert_eq!(sequence(&sequence(&text).to_string()), sequence(&text));
        }
    }
}
