//! Partition keys: a stream assigns a record to a shard by its partition key.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lease_core::InvalidInput;

use crate::event::{Event, EventId};
use crate::limits::Limits;

/// The partition key of a record: records with equal keys go to the same shard.
///
/// 1 to [256](PartitionKey::MAX_BYTES) bytes of UTF-8. Kinesis takes up to 256 characters
/// (`PutRecordsRequestEntry` in the API reference). See
/// [`Exporter::with_partition_key`](crate::Exporter::with_partition_key).
///
/// # Examples
///
/// ```
/// use lease_export::PartitionKey;
///
/// let key: PartitionKey = "customer-12".parse()?;
///
/// assert_eq!(key.as_str(), "customer-12");
/// assert!(PartitionKey::new("").is_err());
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(Arc<str>);

/// Chooses the partition key of each event.
#[derive(Clone, Default)]
pub(crate) struct Partitioner(Option<Arc<KeyOfEvent>>);

type KeyOfEvent = dyn Fn(&Event) -> Option<PartitionKey> + Send + Sync;

impl PartitionKey {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Checks `key`.
    ///
    /// # Errors
    ///
    /// Fails if `key` is empty or longer than [`MAX_BYTES`](Self::MAX_BYTES).
    pub fn new(key: impl Into<Arc<str>>) -> Result<Self, InvalidInput> {
        let key = key.into();
        if key.is_empty() || key.len() > Self::MAX_BYTES {
            return Err(InvalidInput::new(format!(
                "partition key {key:?} is out of range: 1 to {} bytes",
                Self::MAX_BYTES
            )));
        }
        Ok(Self(key))
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<EventId> for PartitionKey {
    /// An id is always a valid key.
    fn from(id: EventId) -> Self {
        Self(id.into_text())
    }
}

impl FromStr for PartitionKey {
    type Err = InvalidInput;

    fn from_str(key: &str) -> Result<Self, InvalidInput> {
        Self::new(key)
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Partitioner {
    pub(crate) fn new(
        key: impl Fn(&Event) -> Option<PartitionKey> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(key)))
    }

    /// A sink without partition keys needs no record per key.
    pub(crate) fn for_sink(&self, limits: Limits) -> Self {
        if limits.has_keys() { self.clone() } else { Self::default() }
    }

    /// Returns the event's own key. Events without a key of their own may share a record.
    pub(crate) fn own_key(&self, event: &Event) -> Option<PartitionKey> {
        self.0.as_ref().and_then(|key| key(event))
    }

    /// Returns the key of a record that begins with `event`.
    pub(crate) fn record_key(&self, event: &Event) -> PartitionKey {
        self.own_key(event).unwrap_or_else(|| event.id().clone().into())
    }
}

impl fmt::Debug for Partitioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Partitioner(own keys)" } else { "Partitioner(ids)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_outside_of_range_is_refused() {
        assert!(PartitionKey::new("").is_err());
        assert!(PartitionKey::new("x".repeat(257)).is_err());
        assert!(PartitionKey::new("x".repeat(256)).is_ok());
    }
}
