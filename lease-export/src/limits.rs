//! How much a sink takes at once.

use lease_core::InvalidInput;

use crate::event::EventId;

/// How much a sink takes at once: all of these limits hold together.
///
/// Sizes are those before base64, as the services count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub(crate) events_per_record: usize,
    pub(crate) record_bytes: usize,
    pub(crate) records_per_batch: usize,
    pub(crate) batch_bytes: usize,
    pub(crate) key: KeyBytes,
}

/// Whether the partition key is part of a record's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyBytes {
    Counted,
    Free,
}

impl Limits {
    /// `PutRecords` of Kinesis Data Streams: 500 records per request, each of 1 MiB including its
    /// partition key, 5 MiB in all.
    ///
    /// Since October 2025, a request may have 10 MiB, and so may a record of a stream that was told
    /// so by `UpdateMaxRecordSize` (`PutRecords` in the API reference; "Handle large records" in
    /// the developer guide). These defaults are what every stream takes, of every age, and what
    /// emulators take; a shard takes no more than 1 MiB per second in either case. The `with_`
    /// methods lift them.
    pub const KINESIS: Self = Self {
        events_per_record: usize::MAX,
        record_bytes: MIB,
        records_per_batch: 500,
        batch_bytes: 5 * MIB,
        key: KeyBytes::Counted,
    };

    /// `PutRecordBatch` of Firehose: 500 records per request, each of 1,000 KiB, 4 MiB in all
    /// (`PutRecordBatch` in the API reference).
    pub const FIREHOSE: Self = Self {
        events_per_record: usize::MAX,
        record_bytes: 1000 * 1024,
        records_per_batch: 500,
        batch_bytes: 4 * MIB,
        key: KeyBytes::Free,
    };

    /// At most `count` events per record, 1 or more. By default as many as fit. Receivers that
    /// work on a record as a whole may want less: the earlier exporter sent 1,000.
    ///
    /// # Errors
    ///
    /// Where `count` is 0.
    pub fn with_events_per_record(mut self, count: usize) -> Result<Self, InvalidInput> {
        self.events_per_record = checked("events per record", count, 1, usize::MAX)?;
        Ok(self)
    }

    /// At most `count` records per batch: 1 to 500, which is what both services take.
    ///
    /// # Errors
    ///
    /// Where `count` is out of range.
    pub fn with_records_per_batch(mut self, count: usize) -> Result<Self, InvalidInput> {
        self.records_per_batch = checked("records per batch", count, 1, 500)?;
        Ok(self)
    }

    /// At most `bytes` per record: 1 KiB, so that a partition key and something to send fit, to the
    /// size of a batch.
    ///
    /// # Errors
    ///
    /// Where `bytes` is out of range.
    pub fn with_record_bytes(mut self, bytes: usize) -> Result<Self, InvalidInput> {
        self.record_bytes = checked("bytes per record", bytes, LEAST_BYTES, self.batch_bytes)?;
        Ok(self)
    }

    /// At most `bytes` per batch: the size of a record to 10 MiB.
    ///
    /// # Errors
    ///
    /// Where `bytes` is out of range.
    pub fn with_batch_bytes(mut self, bytes: usize) -> Result<Self, InvalidInput> {
        self.batch_bytes = checked("bytes per batch", bytes, self.record_bytes, 10 * MIB)?;
        Ok(self)
    }

    /// How many bytes a batch may have.
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// How many bytes a record may have.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// How many records a batch may have.
    pub fn records_per_batch(&self) -> usize {
        self.records_per_batch
    }

    /// The same limits, with one event per record.
    pub(crate) fn with_single_events(self) -> Self {
        Self { events_per_record: 1, ..self }
    }

    /// What a record's name adds to its size.
    pub(crate) fn key_bytes(&self, id: &EventId) -> usize {
        match self.key {
            KeyBytes::Counted => id.as_str().len(),
            KeyBytes::Free => 0,
        }
    }
}

fn checked(what: &str, value: usize, least: usize, most: usize) -> Result<usize, InvalidInput> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(InvalidInput::new(format!("{value} {what} are out of range: {least} to {most}")))
}

const MIB: usize = 1024 * 1024;

const LEAST_BYTES: usize = 1024;
