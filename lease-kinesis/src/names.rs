//! Names of applications and streams, and the keys of an application's rows.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lease_core::{LeaseKey, Lessee};

use crate::invalid::InvalidText;
use crate::shard::ShardId;

/// Names an application. All workers of one application on one table share its streams.
///
/// Has 1 to [256](Self::MAX_CHARS) letters, digits, `_`, `.` and `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Application(Arc<str>);

/// Identifies a stream for a worker that reads several streams.
///
/// The text is `account:name:created`, as in the Kinesis Client Library's keys. `created` is the stream's
/// creation time in seconds since 1970.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(Arc<str>);

/// Names a shard of an application.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct ShardName {
    /// The stream. `None` if the application has one stream.
    pub stream: Option<StreamId>,
    /// The shard.
    pub shard: ShardId,
}

impl Application {
    /// The maximum length of a name.
    pub const MAX_CHARS: usize = 256;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn prefix(&self) -> String {
        format!("{}/", self.0)
    }

    /// Returns the prefix of the keys of all shards' rows: `APPLICATION/shards/`.
    pub fn shards_prefix(&self) -> String {
        format!("{}{SHARDS}", self.prefix())
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

    /// No worker leases this row.
    #[expect(clippy::expect_used, reason = "the parts are valid, and short")]
    pub(crate) fn start(&self, stream: Option<&StreamId>) -> LeaseKey {
        let key = match stream {
            None => format!("{}{START}", self.prefix()),
            Some(stream) => format!("{}{START}/{stream}", self.prefix()),
        };
        LeaseKey::new(key).expect("a key")
    }

    /// The row with a counter for each session. No worker holds this row for long.
    #[expect(clippy::expect_used, reason = "the parts are valid, and short")]
    pub(crate) fn changes(&self) -> LeaseKey {
        LeaseKey::new(format!("{}{CHANGES}", self.prefix())).expect("a key")
    }

    /// Returns `None` for a row that this version does not know.
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
            _ => Err(InvalidText::new("stream id", text, "it must be account:name:created")),
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
const START: &str = "start";
const CHANGES: &str = "changes";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn application() -> Application {
        "orders".parse().unwrap()
    }

    fn shard(stream: Option<&str>, shard: &str) -> ShardName {
        let stream = stream.map(|stream| stream.parse().unwrap());
        ShardName { stream, shard: shard.parse().unwrap() }
    }

    fn row(key: &str) -> Option<RowName> {
        application().row(&LeaseKey::new(key).unwrap())
    }

    #[test]
    fn shard_key_parses_to_shard() {
        let name = shard(None, "shardId-000000000001");

        let key = application().shard(&name);

        assert_eq!(key.as_str(), "orders/shards/shardId-000000000001");
        assert_eq!(application().row(&key), Some(RowName::Shard(name)));
    }

    #[test]
    fn shard_key_of_several_streams_is_as_in_kcl() {
        let name = shard(Some("123456789012:clicks:1700000000"), "shardId-000000000001");

        let key = application().shard(&name);

        let expected = "orders/shards/123456789012:clicks:1700000000:shardId-000000000001";
        assert_eq!(key.as_str(), expected);
        assert_eq!(application().row(&key), Some(RowName::Shard(name)));
    }

    #[test]
    fn worker_key_parses_for_any_name() {
        for name in ["worker-1", "host/1:2", "workers/shards/é"] {
            let name = Lessee::new(name).unwrap();

            let key = application().worker(&name).unwrap();

            assert_eq!(application().row(&key), Some(RowName::Worker(name)));
        }
    }

    #[test]
    fn start_key_is_no_worker_or_shard_row() {
        let clicks = "123456789012:clicks:1700000000".parse().unwrap();
        let (one, several) = (application().start(None), application().start(Some(&clicks)));

        assert_eq!(one.as_str(), "orders/start");
        assert_eq!(several.as_str(), "orders/start/123456789012:clicks:1700000000");
        assert!([one, several].iter().all(|key| application().row(key).is_none()));
    }

    #[test]
    fn unknown_key_parses_to_no_row() {
        for key in [
            "orders",
            "orders/",
            "orders/shards",
            "orders/shards/",
            "orders/workers/",
            "orders/jobs/nightly",
            "orders/shards/one:two:shardId-000000000001",
            "orders/shards/::shardId-000000000001",
            "orders/shards/shard id",
            "orders2/shards/shardId-000000000001",
            "orders.eu/workers/worker-1",
            "shardId-000000000001",
            "my/orders/workers/worker-1",
        ] {
            assert_eq!(row(key), None, "{key}");
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        for good in ["a", "A.b_c-9", &"x".repeat(Application::MAX_CHARS)] {
            assert_eq!(good.parse::<Application>().unwrap().as_str(), good);
        }
        for bad in ["", "a/b", "a b", "é", &"x".repeat(Application::MAX_CHARS + 1)] {
            assert!(bad.parse::<Application>().is_err(), "{bad:?}");
        }
        for good in ["123456789012:clicks:1700000000", "1:a.b_c-9:0"] {
            assert_eq!(good.parse::<StreamId>().unwrap().to_string(), good);
        }
        for bad in ["", "clicks", "1:clicks", "1::2", ":a:2", "1:a:", "1:a:2:3", "x:a:2", "1:a b:2"]
        {
            assert!(bad.parse::<StreamId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn longest_names_form_a_valid_key() {
        let part = "1".repeat(128);
        let longest = format!("{part}:{part}:{part}");
        let application: Application = "x".repeat(Application::MAX_CHARS).parse().unwrap();
        let name = shard(Some(&longest), &"s".repeat(ShardId::MAX_CHARS));

        assert_eq!(application.row(&application.shard(&name)), Some(RowName::Shard(name)));
    }

    proptest! {
        #[test]
        fn every_shard_key_parses_to_its_shard(
            application in "[a-zA-Z0-9_.-]{1,40}",
            stream in prop::option::of("[0-9]{1,12}:[a-zA-Z0-9_.-]{1,40}:[0-9]{1,10}"),
            id in "[a-zA-Z0-9_.-]{1,40}",
        ) {
            let application: Application = application.parse().unwrap();
            let name = shard(stream.as_deref(), &id);

            prop_assert_eq!(application.row(&application.shard(&name)), Some(RowName::Shard(name)));
        }

        #[test]
        fn parsed_key_formats_to_same_key(key in "orders/(shards|workers)?/?[a-z0-9:/ -]{0,20}") {
            if let Some(RowName::Shard(name)) = row(&key) {
                let found = application().shard(&name);
                prop_assert_eq!(found.as_str(), key);
            }
        }
    }
}
