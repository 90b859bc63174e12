//! Splits [aggregated
//! records](https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md) of the
//! Kinesis Producer Library.

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;
use md5::{Digest, Md5};
use prost::Message;
use tracing::debug;

use crate::position::RecordNumber;
use crate::record::Record;
use crate::shard::{HashKeyRange, hash_key_of};
use crate::source::RawRecord;

/// Returns the records of an aggregate whose hash keys are in `hash_keys`. If `raw` is no valid aggregate,
/// returns `raw` itself.
///
/// During a split, one child may get the whole aggregate. The producer writes the other child's records
/// again.
pub(crate) fn deaggregate(raw: RawRecord, hash_keys: HashKeyRange) -> impl Iterator<Item = Record> {
    let records = aggregate_in(&raw.data).and_then(|aggregate| aggregate.records(&raw, hash_keys));
    let (records, whole) = match records {
        Some(records) => (records, None),
        None => (Vec::new(), Some(plain(raw))),
    };
    records.into_iter().chain(whole)
}

fn plain(raw: RawRecord) -> Record {
    let number = RecordNumber::new(raw.sequence);
    Record { arrived: raw.arrived, ..Record::new(number, raw.partition_key, raw.data) }
}

fn aggregate_in(data: &Bytes) -> Option<Aggregate> {
    let (message, digest) = data.strip_prefix(&MAGIC)?.split_last_chunk::<DIGEST_BYTES>()?;
    if Md5::digest(message)[..] != digest[..] {
        return None;
    }
    // `slice_ref` lets the decoded records share the memory of `data`.
    Aggregate::decode(data.slice_ref(message)).ok()
}

impl Aggregate {
    fn records(self, raw: &RawRecord, hash_keys: HashKeyRange) -> Option<Vec<Record>> {
        if self.records.is_empty() {
            return None;
        }
        let partition_keys: Option<Vec<_>> =
            self.partition_keys.iter().map(PartitionKey::parse).collect();
        let explicit_hash_keys: Option<Vec<u128>> =
            self.explicit_hash_keys.iter().map(|text| utf8(text)?.parse().ok()).collect();
        let (partition_keys, explicit_hash_keys) = (partition_keys?, explicit_hash_keys?);

        let count = self.records.len();
        let mut records = Vec::with_capacity(count);
        // Counts the omitted records, too, so that a number identifies the same record in every shard.
        for (sub_sequence, record) in (0..).zip(self.records) {
            let partition_key = entry(&partition_keys, record.partition_key?)?;
            let hash_key = match record.explicit_hash_key {
                Some(index) => *entry(&explicit_hash_keys, index)?,
                None => partition_key.hash_key(),
            };
            let data = record.data?;
            if hash_keys.contains(hash_key) {
                let number = RecordNumber { sequence: raw.sequence.clone(), sub_sequence };
                let partition_key = Arc::clone(&partition_key.text);
                let record = Record::new(number, partition_key, data);
                records.push(Record { arrived: raw.arrived, ..record });
            }
        }
        let left_out = count - records.len();
        if left_out > 0 {
            debug!(sequence = %raw.sequence, left_out, "aggregate has records of another shard");
        }
        Some(records)
    }
}

struct PartitionKey {
    text: Arc<str>,
    hash_key: OnceCell<u128>,
}

impl PartitionKey {
    fn parse(text: &Bytes) -> Option<Self> {
        Some(Self { text: utf8(text)?.into(), hash_key: OnceCell::new() })
    }

    fn hash_key(&self) -> u128 {
        *self.hash_key.get_or_init(|| hash_key_of(&self.text))
    }
}

fn utf8(text: &Bytes) -> Option<&str> {
    std::str::from_utf8(text).ok()
}

fn entry<T>(table: &[T], index: u64) -> Option<&T> {
    table.get(usize::try_from(index).ok()?)
}

/// `AggregatedRecord` of the format. `Bytes` instead of `String` saves a copy.
#[derive(Clone, PartialEq, Message)]
struct Aggregate {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    partition_keys: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    explicit_hash_keys: Vec<Bytes>,
    #[prost(message, repeated, tag = "3")]
    records: Vec<UserRecord>,
}

/// `Record` of the format. Tags are skipped. The first and the last field are required.
#[derive(Clone, PartialEq, Message)]
struct UserRecord {
    #[prost(uint64, optional, tag = "1")]
    partition_key: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    explicit_hash_key: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    data: Option<Bytes>,
}

const MAGIC: [u8; 4] = [0xf3, 0x89, 0x9a, 0xc2];

const DIGEST_BYTES: usize = 16;

#[cfg(test)]
mod tests;
