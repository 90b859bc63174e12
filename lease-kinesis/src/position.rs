//! Where in a shard something is: a record's number, or a place that has no number yet.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::invalid::InvalidText;

/// A number that Kinesis gave to a record: larger than that of every earlier record of its shard.
///
/// Up to [129](Self::MAX_DIGITS) decimal digits, as the
/// [API reference](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_Record.html) has it,
/// compared as an integer. Cloning is cheap: the digits are shared.
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

/// How far a shard has been read: up to and with a record, or to one of the places that have no
/// record.
///
/// The order is that of the Kinesis Client Library: a time, the oldest record, the newest one,
/// each record by its numbers, the end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(clippy::exhaustive_enums, reason = "the places that Kinesis knows")]
pub enum Position {
    /// Nothing has been read; to begin with the first record that arrived at this time or later,
    /// in milliseconds since 1970.
    AtTimestamp(u64),
    /// Nothing has been read; to begin with the oldest record that is kept.
    TrimHorizon,
    /// Nothing has been read; to begin with the next record that arrives. Only in tables that other
    /// libraries wrote: a restart would skip what arrived meanwhile.
    Latest,
    /// Read up to and with this record.
    Record(RecordNumber),
    /// Read to the end of a shard that is closed.
    ShardEnd,
}

/// Which record: its number, and its place within an aggregate.
///
/// Several records that a producer put into one
/// ([KPL](https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md))
/// share a sequence number, and are counted from 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "two numbers, as in each record and each row")]
pub struct RecordNumber {
    /// The number that Kinesis gave.
    pub sequence: SequenceNumber,
    /// The place within an aggregate; 0 for a record that is none.
    pub sub_sequence: u64,
}

/// Where to begin with shards that nobody has read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_enums, reason = "the places that Kinesis knows")]
pub enum InitialPosition {
    /// With what arrives from now on: *now* is when the shard's row is made, so that a restart
    /// skips nothing. The default, as in the Kinesis Client Library.
    #[default]
    Latest,
    /// With the oldest record that is kept.
    TrimHorizon,
    /// With the first record that arrived at this time or later, in milliseconds since 1970.
    AtTimestamp(u64),
}

impl SequenceNumber {
    /// The most digits that Kinesis documents.
    pub const MAX_DIGITS: usize = 129;

    /// The digits, without leading zeros.
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
        // Without leading zeros, more digits are a larger number.
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
    /// The record with this number, that is not in an aggregate.
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
    /// As in the Kinesis Client Library, whose word for a time does not tell it.
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
