//! Records and batches, as a processor receives them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::position::{Position, RecordNumber};

/// A record as its producer wrote it: a plain record, or one record of an aggregate.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Identifies the record, for checkpoints.
    pub number: RecordNumber,
    /// The partition key that the producer chose.
    pub partition_key: Arc<str>,
    /// The data that the producer wrote.
    pub data: Bytes,
    /// The arrival time in milliseconds since 1970, if the stream reports it.
    pub arrived: Option<u64>,
}

/// Records of one shard, in their order in the shard.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Batch {
    /// The records: at least one, unless empty batches are enabled.
    pub records: Vec<Record>,
    /// How far the last record is behind the shard's newest record. `None` if the stream does not report it.
    pub behind: Option<Duration>,
    /// The number of earlier deliveries of these records. A later delivery omits checkpointed records.
    pub attempt: u32,
}

impl Record {
    /// Creates a record without an arrival time, for tests.
    pub fn new(number: RecordNumber, partition_key: impl Into<Arc<str>>, data: Bytes) -> Self {
        Self { number, partition_key: partition_key.into(), data, arrived: None }
    }
}

impl Batch {
    /// Creates a batch for the first delivery of these records.
    pub fn new(records: Vec<Record>, behind: impl Into<Option<Duration>>) -> Self {
        Self { records, behind: behind.into(), attempt: 0 }
    }

    /// Removes the records up to and including `position`. Returns the number of removed records.
    pub fn drop_until(&mut self, position: &Position) -> usize {
        let before = self.records.len();
        self.records.retain(|record| Position::Record(record.number.clone()) > *position);
        before - self.records.len()
    }

    /// Returns the length of the records' data.
    pub(crate) fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.data.len()).sum()
    }

    /// Returns the number of the last record.
    pub fn last(&self) -> Option<&RecordNumber> {
        self.records.last().map(|record| &record.number)
    }
}

impl fmt::Debug for Record {
    /// The data may be secret or long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("number", &self.number)
            .field("partition_key", &self.partition_key)
            .field("bytes", &self.data.len())
            .finish_non_exhaustive()
    }
}
