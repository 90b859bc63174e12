//! What a stream consists of: shards, where they came from, which partition keys are theirs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use md5::{Digest, Md5};

use crate::invalid::InvalidText;
use crate::position::SequenceNumber;

/// Names a shard of a stream: `shardId-000000000000`.
///
/// 1 to [128](Self::MAX_CHARS) letters, digits, `_`, `.` and `-`, as the
/// [API reference](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_Shard.html) has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(Arc<str>);

/// A shard as a stream lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "those who write a source make these")]
pub struct Shard {
    /// Its name.
    pub id: ShardId,
    /// What it was split from, or both that it was merged from; none for a shard of the first hour.
    pub parents: Vec<ShardId>,
    /// Which records are its own.
    pub hash_keys: HashKeyRange,
    /// The number below which it has no record.
    pub begins: SequenceNumber,
    /// The number above which it has no record; `None` while it is open.
    pub ends: Option<SequenceNumber>,
}

/// The hash keys of a shard's records: a record's own is the MD5 of its partition key, unless its
/// producer gave another. Both ends are included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashKeyRange {
    first: u128,
    last: u128,
}

impl ShardId {
    /// The longest name.
    pub const MAX_CHARS: usize = 128;

    /// The name's text.
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
    /// All that there are: 2¹²⁸.
    pub const ALL: Self = Self { first: 0, last: u128::MAX };

    /// From `first` to `last`, both included; `None` where they are the wrong way round.
    pub fn new(first: u128, last: u128) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The lowest.
    pub fn first(self) -> u128 {
        self.first
    }

    /// The highest.
    pub fn last(self) -> u128 {
        self.last
    }

    /// Whether a record with this hash key is one of these.
    pub fn contains(self, hash_key: u128) -> bool {
        (self.first..=self.last).contains(&hash_key)
    }
}

impl fmt::Debug for HashKeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..={:#x}", self.first, self.last)
    }
}

/// The hash key of a record whose producer gave none.
pub fn hash_key_of(partition_key: &str) -> u128 {
    u128::from_be_bytes(Md5::digest(partition_key.as_bytes()).into())
}

impl Shard {
    /// Whether records still arrive.
    pub fn is_open(&self) -> bool {
        self.ends.is_none()
    }
}
