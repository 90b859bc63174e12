//! A record in a message to a child.

#![expect(clippy::option_option, reason = "a field that is `null` differs from a missing one")]

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use lease_kinesis::{Record, RecordNumber, SequenceNumber};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::action::Generation;

/// A record in a message to a child.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a further field would be another protocol")]
pub struct WireRecord {
    /// The producer's data. Java may send `null`, which differs from empty data.
    pub data: Option<Bytes>,
    /// The producer's partition key.
    pub partition_key: Arc<str>,
    /// The sequence number that Kinesis assigned to the record.
    pub sequence_number: SequenceNumber,
    /// The time of arrival, in milliseconds since 1970.
    pub approximate_arrival_timestamp: Option<u64>,
    /// The position within an aggregate. The first generation has no such field.
    pub sub_sequence_number: Option<u64>,
}

impl From<&Record> for WireRecord {
    fn from(record: &Record) -> Self {
        Self {
            data: Some(record.data.clone()),
            partition_key: Arc::clone(&record.partition_key),
            sequence_number: record.number.sequence.clone(),
            approximate_arrival_timestamp: record.arrived,
            sub_sequence_number: Some(record.number.sub_sequence),
        }
    }
}

impl From<WireRecord> for Record {
    /// A record without a sub-sequence number is not in an aggregate.
    fn from(wire: WireRecord) -> Self {
        let sub_sequence = wire.sub_sequence_number.unwrap_or(0);
        let number = RecordNumber { sequence: wire.sequence_number, sub_sequence };
        let mut record = Self::new(number, wire.partition_key, wire.data.unwrap_or_default());
        record.arrived = wire.approximate_arrival_timestamp;
        record
    }
}

impl fmt::Debug for WireRecord {
    /// The data may be secret or long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireRecord")
            .field("sequence_number", &self.sequence_number)
            .field("sub_sequence_number", &self.sub_sequence_number)
            .field("partition_key", &self.partition_key)
            .field("bytes", &self.data.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordText<'a> {
    data: Option<Encoded<'a>>,
    partition_key: &'a str,
    sequence_number: &'a str,
    approximate_arrival_timestamp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub_sequence_number: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
}

impl<'a> RecordText<'a> {
    pub(super) fn new(record: &'a WireRecord, generation: Generation) -> Self {
        let has_fields = generation > Generation::G0;
        Self {
            data: record.data.as_deref().map(Encoded),
            partition_key: &record.partition_key,
            sequence_number: record.sequence_number.as_str(),
            approximate_arrival_timestamp: record.approximate_arrival_timestamp,
            sub_sequence_number: has_fields.then_some(record.sub_sequence_number),
            // Python's client fails without this field.
            action: has_fields.then_some("record"),
        }
    }
}

struct Encoded<'a>(&'a [u8]);

impl Serialize for Encoded<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        json.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

impl<'de> Deserialize<'de> for WireRecord {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let fields = RecordFields::deserialize(json)?;
        Ok(Self {
            data: fields.data.map(|Base64(data)| data),
            partition_key: fields.partition_key,
            sequence_number: fields.sequence_number.parse().map_err(D::Error::custom)?,
            approximate_arrival_timestamp: fields.approximate_arrival_timestamp.map(Into::into),
            sub_sequence_number: fields.sub_sequence_number,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordFields {
    data: Option<Base64>,
    partition_key: Arc<str>,
    sequence_number: String,
    approximate_arrival_timestamp: Option<Timestamp>,
    sub_sequence_number: Option<u64>,
}

/// Version 2.0 sends seconds and nanoseconds, all other versions milliseconds since 1970.
#[derive(Deserialize)]
#[serde(untagged)]
enum Timestamp {
    Millis(u64),
    #[serde(rename_all = "camelCase")]
    Parts {
        epoch_second: u64,
        nano: u64,
    },
}

impl From<Timestamp> for u64 {
    fn from(timestamp: Timestamp) -> Self {
        match timestamp {
            Timestamp::Millis(millis) => millis,
            Timestamp::Parts { epoch_second, nano } => {
                epoch_second.saturating_mul(1000).saturating_add(nano / 1_000_000)
            }
        }
    }
}

struct Base64(Bytes);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        // Avoids a copy of the string.
        json.deserialize_str(Base64Visitor)
    }
}

struct Base64Visitor;

impl Visitor<'_> for Base64Visitor {
    type Value = Base64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Base64, E> {
        STANDARD.decode(text).map(|data| Base64(data.into())).map_err(E::custom)
    }
}
