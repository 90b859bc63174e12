//! What a processor is given: records, one at a time or out of an aggregate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::position::{Position, RecordNumber};

/// A record as its producer meant it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Which record it is: to be checkpointed by.
    pub number: RecordNumber,
    /// What the producer ordered its records by.
    pub partition_key: Arc<str>,
    /// What the producer put.
    pub data: Bytes,
    /// When it arrived, in milliseconds since 1970, where that is told.
    pub arrived: Option<u64>,
}

/// Records of one shard, in order.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Batch {
    /// At least one, unless the worker was set up to deliver empty batches too.
    pub records: Vec<Record>,
    /// How far the last of them is behind the newest record of the shard; `None` where that is not
    /// told.
    pub behind: Option<Duration>,
    /// How often these records were given to a processor before: more than 0 after a failure. What
    /// the processor had checkpointed of the batch is not among them any more.
    pub attempt: u32,
}

impl Record {
    /// A record, as a test may want one.
    pub fn new(number: RecordNumber, partition_key: impl Into<Arc<str>>, data: Bytes) -> Self {
        Self { number, partition_key: partition_key.into(), data, arrived: None }
    }
}

impl Batch {
    /// The first try of these records.
    pub fn new(records: Vec<Record>, behind: impl Into<Option<Duration>>) -> Self {
        Self { records, behind: behind.into(), attempt: 0 }
    }

    /// Removes the records up to and with `position`. Returns their number.
    pub(crate) fn drop_until(&mut self, position: &Position) -> usize {
        let before = self.records.len();
        self.records.retain(|record| Position::Record(record.number.clone()) > *position);
        before - self.records.len()
    }

    /// The number of its last record.
    pub fn last(&self) -> Option<&RecordNumber> {
        self.records.last().map(|record| &record.number)
    }
}

impl fmt::Debug for Record {
    /// Without its data: that may be secret, and long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("number", &self.number)
            .field("partition_key", &self.partition_key)
            .field("bytes", &self.data.len())
            .finish_non_exhaustive()
    }
}
