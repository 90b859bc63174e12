//! The limits of a sink.

use lease_core::InvalidInput;

/// The limits of a sink. A request has to meet all limits. Sizes are in bytes before base64, as the
/// services count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub(crate) events_per_record: usize,
    pub(crate) record_bytes: usize,
    pub(crate) records_per_batch: usize,
    pub(crate) batch_bytes: usize,
    pub(crate) key: KeyBytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyBytes {
    Counted,
    Free,
}

impl Limits {
    /// `PutRecords` of Kinesis Data Streams: 500 records per request, 1 MiB per record with its
    /// partition key, 5 MiB per request.
    ///
    /// The defaults are limits that every stream and every emulator takes. Since October 2025 a
    /// request may have 10 MiB (`PutRecords` in the API reference). A record may also have 10 MiB,
    /// if `UpdateMaxRecordSize` allows this for the stream ("Handle large records" in the developer
    /// guide). A shard takes 1 MiB per second in either case. The `with_` methods raise the limits.
    pub const KINESIS: Self = Self {
        events_per_record: usize::MAX,
        record_bytes: MIB,
        records_per_batch: 500,
        batch_bytes: 5 * MIB,
        key: KeyBytes::Counted,
    };

    /// `PutRecordBatch` of Firehose: 500 records per request, 1,000 KiB per record, 4 MiB per
    /// request (`PutRecordBatch` in the API reference).
    pub const FIREHOSE: Self = Self {
        events_per_record: usize::MAX,
        record_bytes: 1000 * 1024,
        records_per_batch: 500,
        batch_bytes: 4 * MIB,
        key: KeyBytes::Free,
    };

    /// Sets the largest number of events per record, 1 or more. By default only the record's size
    /// limits this number. Receivers that process a record as a whole may need fewer events.
    ///
    /// # Errors
    ///
    /// Fails if `count` is 0.
    pub fn with_events_per_record(mut self, count: usize) -> Result<Self, InvalidInput> {
        self.events_per_record = checked("events per record", count, 1, usize::MAX)?;
        Ok(self)
    }

    /// Sets the largest number of records per batch, 1 to 500. The default is 500, the limit of
    /// both services.
    ///
    /// # Errors
    ///
    /// Fails if `count` is out of range.
    pub fn with_records_per_batch(mut self, count: usize) -> Result<Self, InvalidInput> {
        self.records_per_batch = checked("records per batch", count, 1, 500)?;
        Ok(self)
    }

    /// Sets the largest size of a record in bytes, from 1 KiB to the size of a batch. The lower
    /// bound leaves room for a partition key and an event.
    ///
    /// # Errors
    ///
    /// Fails if `bytes` is out of range.
    pub fn with_record_bytes(mut self, bytes: usize) -> Result<Self, InvalidInput> {
        self.record_bytes = checked("bytes per record", bytes, LEAST_BYTES, self.batch_bytes)?;
        Ok(self)
    }

    /// Sets the largest size of a batch in bytes, from the size of a record to 10 MiB.
    ///
    /// # Errors
    ///
    /// Fails if `bytes` is out of range.
    pub fn with_batch_bytes(mut self, bytes: usize) -> Result<Self, InvalidInput> {
        self.batch_bytes = checked("bytes per batch", bytes, self.record_bytes, 10 * MIB)?;
        Ok(self)
    }

    /// The largest size of a batch, in bytes.
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// The largest size of a record, in bytes.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// The largest number of records per batch.
    pub fn records_per_batch(&self) -> usize {
        self.records_per_batch
    }

    pub(crate) fn with_single_events(self) -> Self {
        Self { events_per_record: 1, ..self }
    }

    pub(crate) fn key_bytes(&self, key: &str) -> usize {
        match self.key {
            KeyBytes::Counted => key.len(),
            KeyBytes::Free => 0,
        }
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.key == KeyBytes::Counted
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
