//! The keys of an application's rows: those of its workers, and those of its shards.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lease_core::{LeaseKey, Lessee};

use crate::invalid::InvalidText;
use crate::shard::ShardId;

/// Names an application: all workers with this name, on one table, read the same streams together.
///
/// 1 to [256](Self::MAX_CHARS) letters, digits, `_`, `.` and `-`. Several applications share a
/// table without knowing of each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Application(Arc<str>);

/// Which stream, for a worker that reads several: the account, the name, and when it was created,
/// in seconds since 1970.
///
/// Written `account:name:created`, as in the Kinesis Client Library's keys for several streams:
/// one that was deleted and made again is another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(Arc<str>);

/// A shard of one of an application's streams.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ShardName {
    /// `None` where the application has one stream.
    pub(crate) stream: Option<StreamId>,
    pub(crate) shard: ShardId,
}

impl Application {
    /// The longest name.
    pub const MAX_CHARS: usize = 256;

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What the keys of all of its rows begin with.
    pub(crate) fn prefix(&self) -> String {
        format!("{}/", self.0)
    }

    pub(crate) fn worker(&self, name: &Lessee) -> Result<LeaseKey, lease_core::InvalidInput> {
        LeaseKey::new(format!("{}{WORKERS}{name}", self.prefix()))
    }

    #[expect(clippy::expect_used, reason = "the parts are valid, and short")]
    pub(crate) fn shard(&self, name: &ShardName) -> LeaseKey {
        let key = match &name.stream {
            None => format!("{}{SHARDS}{}", self.prefix(), name.shard),
            Some(stream) => format!("{}{SHARDS}{stream}:{}", self.prefix(), name.shard),
        };
        LeaseKey::new(key).expect("a key")
    }

    /// What `key` is a row of; `None` where it is none that this version knows.
    pub(crate) fn row(&self, key: &LeaseKey) -> Option<RowName> {
        let rest = key.as_str().strip_prefix(self.as_str())?.strip_prefix('/')?;
        if let Some(worker) = rest.strip_prefix(WORKERS) {
            return Lessee::new(worker).ok().map(RowName::Worker);
        }
        let name = rest.strip_prefix(SHARDS)?;
        let (stream, shard) = match name.rsplit_once(':') {
            Some((stream, shard)) => (Some(stream.parse().ok()?), shard),
            None => (None, name),
        };
        Some(RowName::Shard(ShardName { stream, shard: shard.parse().ok()? }))
    }
}

/// What a row is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowName {
    Worker(Lessee),
    Shard(ShardName),
}

impl FromStr for Application {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if text.is_empty() || text.len() > Self::MAX_CHARS || !text.bytes().all(allowed) {
            let rule = "1 to 256 letters, digits, `_`, `.` and `-`";
            return Err(InvalidText::new("application name", text, rule));
        }
        Ok(Self(text.into()))
    }
}

impl FromStr for StreamId {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let all = |part: &str, allowed: fn(u8) -> bool| {
            !part.is_empty() && part.len() <= 128 && part.bytes().all(allowed)
        };
        let name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let digit = |byte: u8| byte.is_ascii_digit();
        let parts: Vec<_> = text.split(':').collect();
        match parts.as_slice() {
            [account, stream, created]
                if all(account, digit) && all(stream, name) && all(created, digit) =>
            {
                Ok(Self(text.into()))
            }
            _ => Err(InvalidText::new("stream id", text, "it is account:name:created")),
        }
    }
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const WORKERS: &str = "workers/";
const SHARDS: &str = "shards/";
