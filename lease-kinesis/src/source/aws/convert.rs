//! Converts types of the SDK to types of this crate.

use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types;
use bytes::Bytes;

use crate::shard::{HashKeyRange, Shard};
use crate::source::{RawRecord, ReadFrom};

type InvalidAnswer = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn shard(shard: types::Shard) -> Result<Shard, InvalidAnswer> {
    let parents = [shard.parent_shard_id, shard.adjacent_parent_shard_id];
    let parents = parents.iter().flatten().map(|parent| parent.parse());
    let numbers = shard.sequence_number_range.ok_or("a shard without its sequence numbers")?;
    Ok(Shard {
        id: shard.shard_id.parse()?,
        parents: parents.collect::<Result<_, _>>()?,
        hash_keys: hash_keys(shard.hash_key_range)?,
        begins: numbers.starting_sequence_number.parse()?,
        ends: numbers.ending_sequence_number.map(|number| number.parse()).transpose()?,
    })
}

/// The report of a parent's end has no sequence numbers of the child.
pub(super) fn child(child: types::ChildShard) -> Result<Shard, InvalidAnswer> {
    let parents = child.parent_shards.iter().map(|parent| parent.parse());
    Ok(Shard {
        id: child.shard_id.parse()?,
        parents: parents.collect::<Result<_, _>>()?,
        hash_keys: hash_keys(child.hash_key_range)?,
        begins: "0".parse()?,
        ends: None,
    })
}

fn hash_keys(range: Option<types::HashKeyRange>) -> Result<HashKeyRange, InvalidAnswer> {
    let range = range.ok_or("a shard without its hash keys")?;
    let (first, last) = (range.starting_hash_key.parse()?, range.ending_hash_key.parse()?);
    Ok(HashKeyRange::new(first, last).ok_or("hash keys in the wrong order")?)
}

pub(super) fn record(record: types::Record) -> Result<RawRecord, InvalidAnswer> {
    // The service sends fractional seconds, whose last digit may be inexact.
    let millis = |at: DateTime| u64::try_from((at.as_nanos() + 500_000) / 1_000_000).ok();
    Ok(RawRecord {
        sequence: record.sequence_number.parse()?,
        // A stream that assigns records to shards itself may omit the partition key.
        partition_key: record.partition_key.unwrap_or_default().into(),
        data: Bytes::from(record.data.into_inner()),
        arrived: record.approximate_arrival_timestamp.and_then(millis),
    })
}

pub(super) fn all<T, U>(
    items: Vec<T>,
    convert: fn(T) -> Result<U, InvalidAnswer>,
) -> Result<Vec<U>, InvalidAnswer> {
    items.into_iter().map(convert).collect()
}

pub(super) fn start(
    from: &ReadFrom,
) -> (types::ShardIteratorType, Option<String>, Option<DateTime>) {
    use types::ShardIteratorType as Type;

    match from {
        ReadFrom::At(number) => (Type::AtSequenceNumber, Some(number.to_string()), None),
        ReadFrom::Timestamp(at) => {
            let at = DateTime::from_millis(i64::try_from(*at).unwrap_or(i64::MAX));
            (Type::AtTimestamp, None, Some(at))
        }
        ReadFrom::TrimHorizon => (Type::TrimHorizon, None, None),
        ReadFrom::Latest => (Type::Latest, None, None),
    }
}
