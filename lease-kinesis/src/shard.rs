//! Shards: their ids, their parents and their hash keys.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use md5::{Digest, Md5};

use crate::invalid::InvalidText;
use crate::position::SequenceNumber;

/// Names a shard of a stream: `shardId-000000000000`.
///
/// Has 1 to [128](Self::MAX_CHARS) letters, digits, `_`, `.` and `-`, as the
/// [API reference](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_Shard.html) says.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(Arc<str>);

/// Describes a shard as a stream lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "implementations of a source create these")]
pub struct Shard {
    /// The shard's name.
    pub id: ShardId,
    /// One parent if a split created the shard, two parents if a merge created it, otherwise none.
    pub parents: Vec<ShardId>,
    /// The hash keys of the shard's records.
    pub hash_keys: HashKeyRange,
    /// The lower bound of the shard's sequence numbers.
    pub begins: SequenceNumber,
    /// The upper bound. `None` while the shard is open.
    pub ends: Option<SequenceNumber>,
}

/// A range of hash keys, including both ends. The hash key of a record is the MD5 of its partition key,
/// unless the producer has set an explicit hash key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashKeyRange {
    first: u128,
    last: u128,
}

impl ShardId {
    /// The maximum length of a name.
    pub const MAX_CHARS: usize = 128;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ShardId {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if text.is_empty() || text.len() > Self::MAX_CHARS || !text.bytes().all(allowed) {
            let rule = "1 to 128 letters, digits, `_`, `.` and `-`";
            return Err(InvalidText::new("shard id", text, rule));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HashKeyRange {
    /// All 2¹²⁸ hash keys.
    pub const ALL: Self = Self { first: 0, last: u128::MAX };

    /// Creates a range that includes both ends. Returns `None` if `first` exceeds `last`.
    pub fn new(first: u128, last: u128) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// Returns the lowest hash key.
    pub fn first(self) -> u128 {
        self.first
    }

    /// Returns the highest hash key.
    pub fn last(self) -> u128 {
        self.last
    }

    /// Reports whether the range includes `hash_key`.
    pub fn contains(self, hash_key: u128) -> bool {
        (self.first..=self.last).contains(&hash_key)
    }
}

impl fmt::Debug for HashKeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..={:#x}", self.first, self.last)
    }
}

/// Computes the hash key of a record whose producer set no explicit hash key.
pub fn hash_key_of(partition_key: &str) -> u128 {
    u128::from_be_bytes(Md5::digest(partition_key.as_bytes()).into())
}

impl Shard {
    /// Reports whether the shard still accepts records.
    pub fn is_open(&self) -> bool {
        self.ends.is_none()
    }
}
