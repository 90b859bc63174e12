//! The row of a shard. Attributes that the Kinesis Client Library also has keep that library's names.

use std::collections::BTreeSet;

use lease_core::store::{LeaseRecord, Parent};
use lease_core::{Attributes, Change, LeaseKey, Lessee, StoreError, StoreErrorKind, Value};

use crate::names::{Application, RowName, ShardName, StreamId};
use crate::position::{Position, RecordNumber};
use crate::shard::{HashKeyRange, Shard, ShardId};
use crate::table::lifecycle::RowState;

/// The row of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardRow {
    /// The key of the shard's lease.
    pub key: LeaseKey,
    /// The shard's stream. `None` if the application reads one stream.
    pub stream: Option<StreamId>,
    /// The shard.
    pub shard: ShardId,
    /// The worker that reads the shard now.
    pub holder: Option<Lessee>,
    /// The session under which the worker holds the shard. The row does not show whether it has ended.
    pub(crate) session: Option<Parent>,
    /// How far the shard was read.
    pub checkpoint: Position,
    /// Whether the checkpoint is [`LATEST`].
    pub(crate) is_latest: bool,
    pub(crate) written: CheckpointAttributes,
    /// The shards that were split or merged to create this shard.
    pub parents: BTreeSet<ShardId>,
    /// The shards into which this shard was split or merged. Empty until this shard has ended.
    pub children: BTreeSet<ShardId>,
    /// The hash keys of the shard's records, or all hash keys if the row has none.
    pub hash_keys: HashKeyRange,
    /// False in rows of the Kinesis Client Library 1.
    pub(crate) has_hash_keys: bool,
    /// How often workers have obtained the shard since its last checkpoint.
    pub switches: u32,
    /// Whether a worker of another library holds the lease.
    pub is_foreign: bool,
}

impl ShardRow {
    /// Reads a row. Returns `None` if the record is not for a shard of `application`.
    ///
    /// # Errors
    ///
    /// Returns [`StoreErrorKind::Corrupt`] if an attribute cannot be read.
    pub fn from_record(
        application: &Application,
        record: LeaseRecord,
    ) -> Result<Option<Self>, StoreError> {
        match application.row(&record.key) {
            Some(RowName::Shard(name)) => Self::read(name, record).map(Some),
            Some(RowName::Worker(_)) | None => Ok(None),
        }
    }

    /// Fails if an attribute cannot be read.
    pub(crate) fn read(name: ShardName, record: LeaseRecord) -> Result<Self, StoreError> {
        let checkpoint = position(&record)?;
        let attributes = &record.attributes;
        let bound = |name: &str| match attributes.get(name) {
            None => Ok(None),
            Some(value) => {
                let bound = value.as_text().and_then(|text| text.parse().ok());
                bound.map(Some).ok_or_else(|| corrupt(&record, name))
            }
        };
        let first = bound(FIRST_HASH_KEY)?.unwrap_or(0);
        let last = bound(LAST_HASH_KEY)?.unwrap_or(u128::MAX);
        let hash_keys = HashKeyRange::new(first, last).ok_or_else(|| {
            let key = &record.key;
            let text =
                format!("row {key} has hash keys from {first} to {last}, which is not a range");
            StoreError::new(StoreErrorKind::Corrupt, text)
        })?;
        let switches = attributes.get(SWITCHES).and_then(Value::as_i64).unwrap_or(0);
        Ok(Self {
            checkpoint,
            is_latest: attributes.get(CHECKPOINT).and_then(Value::as_text) == Some(LATEST),
            written: written(&record),
            parents: shards(&record, PARENTS)?,
            children: shards(&record, CHILDREN)?,
            hash_keys,
            has_hash_keys: attributes.contains_key(FIRST_HASH_KEY)
                && attributes.contains_key(LAST_HASH_KEY),
            switches: u32::try_from(switches.max(0)).unwrap_or(u32::MAX),
            stream: name.stream,
            shard: name.shard,
            is_foreign: record.holder.is_some() && attributes.contains_key(OWNER),
            session: record.holder.as_ref().and_then(|holder| holder.parent.clone()),
            holder: record.holder.map(|holder| holder.lessee),
            key: record.key,
        })
    }

    pub(crate) fn row_state(&self) -> RowState {
        let (checkpoint, parents) = (self.checkpoint.clone(), self.parents.clone());
        RowState { checkpoint, parents, hash_keys: self.hash_keys }
    }
}

/// Returns the attributes of a new row, for a shard that no worker has read.
pub(crate) fn new_row(shard: &Shard, checkpoint: &Position) -> Attributes {
    let checkpoint_attributes = checkpoint_attributes(checkpoint).into_iter();
    let mut attributes: Attributes =
        checkpoint_attributes.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    if !shard.parents.is_empty() {
        attributes.insert(PARENTS.to_owned(), set_of(&shard.parents));
    }
    let bounds =
        [(FIRST_HASH_KEY, shard.hash_keys.first()), (LAST_HASH_KEY, shard.hash_keys.last())];
    attributes.extend(bounds.map(|(name, key)| (name.to_owned(), key.to_string().into())));
    attributes.insert(SWITCHES.to_owned(), 0.into());
    attributes
}

/// `at` is the start time in milliseconds since 1970.
pub(crate) fn start_row(at: u64) -> Attributes {
    [(START.to_owned(), Value::from(at))].into()
}

/// A default time would start the stream a second time, so an unreadable time is an error.
pub(crate) fn start(record: &LeaseRecord) -> Result<u64, StoreError> {
    let at = record.attributes.get(START).and_then(Value::as_i64);
    at.and_then(|at| u64::try_from(at).ok()).ok_or_else(|| corrupt(record, START))
}

pub(crate) fn switched(switches: u32) -> Change {
    Change::new().set(SWITCHES, switches).remove(RESERVED_FOR)
}

pub(crate) fn reserved_for(to: &Lessee) -> Change {
    Change::new().set(RESERVED_FOR, to.as_str())
}

/// The shard is free, and was last handed over to `worker`.
pub(crate) fn is_reserved_for(record: &LeaseRecord, worker: &Lessee) -> bool {
    let named = record.attributes.get(RESERVED_FOR).and_then(Value::as_text);
    record.holder.is_none() && named == Some(worker.as_str())
}

pub(crate) fn children_change(children: &BTreeSet<ShardId>) -> Change {
    let change = Change::new();
    if children.is_empty() { change } else { change.set(CHILDREN, set_of(children)) }
}

/// `None` stands for an absent attribute.
pub(crate) type CheckpointAttributes = [(&'static str, Option<Value>); 3];

/// Requires that the checkpoint is still `before`.
pub(crate) fn checkpoint(before: &CheckpointAttributes, next: &Position) -> Change {
    let mut change = Change::new().set(SWITCHES, 0);
    for (name, value) in before.clone() {
        change = match value {
            Some(value) => change.expecting(name, value),
            None => change.expecting_none(name),
        };
    }
    for (name, value) in checkpoint_attributes(next) {
        change = match value {
            Some(value) => change.set(name, value),
            None => change.remove(name),
        };
    }
    change
}

/// A default checkpoint would start the shard a second time, so an unreadable checkpoint is an error.
pub(crate) fn position(record: &LeaseRecord) -> Result<Position, StoreError> {
    let attribute = |name: &str| record.attributes.get(name);
    let corrupt = |name: &str| corrupt(record, name);
    let number = |name: &str| {
        let number = attribute(name).map(Value::as_i64);
        number.map(|number| number.and_then(|number| u64::try_from(number).ok()))
    };
    let word = attribute(CHECKPOINT).and_then(Value::as_text).ok_or_else(|| corrupt(CHECKPOINT))?;
    Ok(match word {
        "TRIM_HORIZON" => Position::TrimHorizon,
        LATEST => match number(TIMESTAMP) {
            None => Position::Latest,
            Some(at) => Position::AtTimestamp(at.ok_or_else(|| corrupt(TIMESTAMP))?),
        },
        SHARD_END => Position::ShardEnd,
        AT_TIMESTAMP => {
            let at = number(TIMESTAMP).flatten().ok_or_else(|| corrupt(TIMESTAMP))?;
            Position::AtTimestamp(at)
        }
        digits => {
            let sequence = digits.parse().map_err(|_not_digits| corrupt(CHECKPOINT))?;
            let sub_sequence = number(SUB_SEQUENCE).unwrap_or(Some(0));
            let sub_sequence = sub_sequence.ok_or_else(|| corrupt(SUB_SEQUENCE))?;
            Position::Record(RecordNumber { sequence, sub_sequence })
        }
    })
}

pub(crate) fn written(record: &LeaseRecord) -> CheckpointAttributes {
    [CHECKPOINT, SUB_SEQUENCE, TIMESTAMP].map(|name| (name, record.attributes.get(name).cloned()))
}

pub(crate) fn checkpoint_attributes(position: &Position) -> CheckpointAttributes {
    let (word, sub_sequence, timestamp) = match position {
        Position::TrimHorizon => ("TRIM_HORIZON".into(), 0, None),
        Position::Latest => (LATEST.into(), 0, None),
        Position::ShardEnd => (SHARD_END.into(), 0, None),
        Position::AtTimestamp(at) => (AT_TIMESTAMP.into(), 0, Some(Value::from(*at))),
        Position::Record(number) => {
            (Value::from(number.sequence.as_str()), number.sub_sequence, None)
        }
    };
    [(CHECKPOINT, Some(word)), (SUB_SEQUENCE, Some(sub_sequence.into())), (TIMESTAMP, timestamp)]
}

fn shards(record: &LeaseRecord, name: &str) -> Result<BTreeSet<ShardId>, StoreError> {
    let texts = match record.attributes.get(name) {
        None => return Ok(BTreeSet::new()),
        Some(Value::TextSet(texts)) => texts,
        Some(_) => return Err(corrupt(record, name)),
    };
    let shards: Result<_, _> = texts.iter().map(|text| text.parse()).collect();
    shards.map_err(|_invalid| corrupt(record, name))
}

fn set_of<'a, S: IntoIterator<Item = &'a ShardId>>(shards: S) -> Value {
    Value::TextSet(shards.into_iter().map(|shard| shard.as_str().to_owned()).collect())
}

/// Quotes the value, so that an operator need not read the row.
fn corrupt(record: &LeaseRecord, name: &str) -> StoreError {
    let key = &record.key;
    let text = match record.attributes.get(name) {
        None => format!("row {key} has no attribute {name:?}"),
        Some(value) => {
            let mut found = format!("{value:?}");
            if let Some((end, _)) = found.char_indices().nth(MAX_QUOTED) {
                found.truncate(end);
                found.push_str(" and more");
            }
            format!("row {key} has an attribute {name:?} that cannot be parsed: {found}")
        }
    };
    StoreError::new(StoreErrorKind::Corrupt, text)
}

/// The maximum length of a quoted value, in characters.
const MAX_QUOTED: usize = 100;

/// The attribute for the checkpoint: a sequence number, or a word such as `LATEST`.
pub const CHECKPOINT: &str = "checkpoint";
/// The attribute with the holder's name. A store adds it if the holder is a worker of another library.
pub const OWNER: &str = "leaseOwner";
const SUB_SEQUENCE: &str = "checkpointSubSequenceNumber";
/// The attribute for the start time of an [`AT_TIMESTAMP`] or [`LATEST`] checkpoint, in milliseconds since 1970.
pub const TIMESTAMP: &str = "checkpointTimestamp";
/// The checkpoint of a shard that is read from the time in [`TIMESTAMP`].
pub const AT_TIMESTAMP: &str = "AT_TIMESTAMP";
/// The checkpoint of a shard from which a worker delivers only records that are written after its start. If the row
/// has a [`TIMESTAMP`], this is the time of the first start.
pub const LATEST: &str = "LATEST";
/// The checkpoint of a shard that was read to its end.
pub const SHARD_END: &str = "SHARD_END";
const START: &str = "startTimestamp";
const PARENTS: &str = "parentShardId";
const CHILDREN: &str = "childShardIds";
const FIRST_HASH_KEY: &str = "startingHashKey";
const LAST_HASH_KEY: &str = "endingHashKey";
/// The worker to which the shard is handed over. Only this crate uses this attribute.
const RESERVED_FOR: &str = "reservedFor";
const SWITCHES: &str = "ownerSwitchesSinceCheckpoint";

#[cfg(test)]
mod tests;
