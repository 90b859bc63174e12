//! A shard's row: what is kept of it beside its lease. Names are those of the Kinesis Client
//! Library, where it has one.

use std::collections::BTreeSet;

use lease_core::{
    Attributes, Change, LeaseKey, LeaseRecord, Lessee, StoreError, StoreErrorKind, Value,
};

use crate::lifecycle::Known;
use crate::names::{ShardName, StreamId};
use crate::position::{Position, RecordNumber};
use crate::shard::{HashKeyRange, Shard, ShardId};

/// A shard, as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardRow {
    pub(crate) key: LeaseKey,
    /// `None` where the application has one stream.
    pub(crate) stream: Option<StreamId>,
    pub(crate) shard: ShardId,
    /// Who reads it now.
    pub(crate) holder: Option<Lessee>,
    pub(crate) checkpoint: Position,
    /// The same, as it is written there.
    pub(crate) written: Words,
    pub(crate) parents: BTreeSet<ShardId>,
    /// Known once the shard has ended.
    pub(crate) children: BTreeSet<ShardId>,
    /// All, if the row has none.
    pub(crate) hash_keys: HashKeyRange,
    /// Rows that the Kinesis Client Library 1 made have no hash keys.
    pub(crate) has_hash_keys: bool,
    /// How often another worker obtained it since its last checkpoint.
    pub(crate) switches: u32,
    /// Whether its holder is a worker of the Kinesis Client Library.
    #[cfg(feature = "kcl")]
    pub(crate) is_of_kcl: bool,
}

impl ShardRow {
    /// Reads the row of the shard called `name`.
    ///
    /// # Errors
    ///
    /// Where it is not such a row.
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
            let text = format!("row {key} has hash keys from {first} to {last}, which is no range");
            StoreError::new(StoreErrorKind::Corrupt, text)
        })?;
        let switches = attributes.get(SWITCHES).and_then(Value::as_i64).unwrap_or(0);
        Ok(Self {
            checkpoint,
            written: written(&record),
            parents: shards(&record, PARENTS)?,
            children: shards(&record, CHILDREN)?,
            hash_keys,
            has_hash_keys: attributes.contains_key(FIRST_HASH_KEY)
                && attributes.contains_key(LAST_HASH_KEY),
            switches: u32::try_from(switches.max(0)).unwrap_or(u32::MAX),
            stream: name.stream,
            shard: name.shard,
            #[cfg(feature = "kcl")]
            is_of_kcl: record.holder.is_some() && attributes.contains_key(OWNER),
            holder: record.holder.map(|holder| holder.lessee),
            key: record.key,
        })
    }

    /// What decides over the life of its row.
    pub(crate) fn known(&self) -> Known {
        let (checkpoint, parents) = (self.checkpoint.clone(), self.parents.clone());
        Known { checkpoint, parents, hash_keys: self.hash_keys }
    }
}

/// What the row of a shard is made with that nobody has read yet.
pub(crate) fn of_new(shard: &Shard, checkpoint: &Position) -> Attributes {
    let words = words(checkpoint).into_iter();
    let mut attributes: Attributes =
        words.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    if !shard.parents.is_empty() {
        attributes.insert(PARENTS.to_owned(), set_of(&shard.parents));
    }
    let bounds =
        [(FIRST_HASH_KEY, shard.hash_keys.first()), (LAST_HASH_KEY, shard.hash_keys.last())];
    attributes.extend(bounds.map(|(name, key)| (name.to_owned(), key.to_string().into())));
    attributes.insert(SWITCHES.to_owned(), 0.into());
    attributes
}

/// What is written of a stream before its first shards are begun with, `at` this time in
/// milliseconds since 1970.
pub(crate) fn of_start(at: u64) -> Attributes {
    [(START.to_owned(), Value::from(at))].into()
}

/// The time at which a stream was first begun with.
///
/// # Errors
///
/// Where it cannot be understood. A stream is never begun with anew for that.
pub(crate) fn start(record: &LeaseRecord) -> Result<u64, StoreError> {
    let at = record.attributes.get(START).and_then(Value::as_i64);
    at.and_then(|at| u64::try_from(at).ok()).ok_or_else(|| corrupt(record, START))
}

/// Another worker has obtained the shard, for the `switches`th time since the last checkpoint.
pub(crate) fn switched(switches: u32) -> Change {
    Change::new().set(SWITCHES, switches).remove(RESERVED_FOR)
}

/// The shard is about to be handed over to this worker.
pub(crate) fn reserved_for(to: &Lessee) -> Change {
    Change::new().set(RESERVED_FOR, to.as_str())
}

/// Whether the shard was last handed over to this worker, which does not read it yet.
pub(crate) fn is_reserved_for(record: &LeaseRecord, worker: &Lessee) -> bool {
    let named = record.attributes.get(RESERVED_FOR).and_then(Value::as_text);
    record.holder.is_none() && named == Some(worker.as_str())
}

/// The shard was split or merged into `children`.
pub(crate) fn became(children: &BTreeSet<ShardId>) -> Change {
    let change = Change::new();
    if children.is_empty() { change } else { change.set(CHILDREN, set_of(children)) }
}

/// The attributes that say how far a shard was read; `None` for those that are absent.
pub(crate) type Words = [(&'static str, Option<Value>); 3];

/// Moves a row's checkpoint from what is written there, `before`, to `next`.
pub(crate) fn checkpoint(before: &Words, next: &Position) -> Change {
    let mut change = Change::new().set(SWITCHES, 0);
    for (name, value) in before.clone() {
        change = match value {
            Some(value) => change.expecting(name, value),
            None => change.expecting_none(name),
        };
    }
    for (name, value) in words(next) {
        change = match value {
            Some(value) => change.set(name, value),
            None => change.remove(name),
        };
    }
    change
}

/// How far a row says that its shard was read.
///
/// # Errors
///
/// Where it says nothing that can be understood. A shard is never begun with again for that.
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
        LATEST => Position::Latest,
        "SHARD_END" => Position::ShardEnd,
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

/// How far a row says that its shard was read, as it is written there: by whichever library.
pub(crate) fn written(record: &LeaseRecord) -> Words {
    [CHECKPOINT, SUB_SEQUENCE, TIMESTAMP].map(|name| (name, record.attributes.get(name).cloned()))
}

/// How a position is written.
pub(crate) fn words(position: &Position) -> Words {
    let (word, sub_sequence, timestamp) = match position {
        Position::TrimHorizon => ("TRIM_HORIZON".into(), 0, None),
        Position::Latest => (LATEST.into(), 0, None),
        Position::ShardEnd => ("SHARD_END".into(), 0, None),
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

/// What stands there is quoted: whoever is to mend it need not look it up.
fn corrupt(record: &LeaseRecord, name: &str) -> StoreError {
    let key = &record.key;
    let text = match record.attributes.get(name) {
        None => format!("row {key} has no attribute {name:?}"),
        Some(value) => {
            let mut found = format!("{value:?}");
            if let Some((end, _)) = found.char_indices().nth(LONGEST_TOLD) {
                found.truncate(end);
                found.push_str(" and more");
            }
            format!("row {key} has an attribute {name:?} that cannot be understood: {found}")
        }
    };
    StoreError::new(StoreErrorKind::Corrupt, text)
}

/// In characters.
const LONGEST_TOLD: usize = 100;

pub(crate) const CHECKPOINT: &str = "checkpoint";
/// On a row that a worker of the Kinesis Client Library has; the store shows no other owner.
#[cfg(feature = "kcl")]
pub(crate) const OWNER: &str = "leaseOwner";
const SUB_SEQUENCE: &str = "checkpointSubSequenceNumber";
/// Of our own: the word `AT_TIMESTAMP` does not say which.
pub(crate) const TIMESTAMP: &str = "checkpointTimestamp";
pub(crate) const AT_TIMESTAMP: &str = "AT_TIMESTAMP";
pub(crate) const LATEST: &str = "LATEST";
const START: &str = "startTimestamp";
const PARENTS: &str = "parentShardId";
const CHILDREN: &str = "childShardIds";
const FIRST_HASH_KEY: &str = "startingHashKey";
const LAST_HASH_KEY: &str = "endingHashKey";
/// Of our own: the worker that the shard is being handed over to.
const RESERVED_FOR: &str = "reservedFor";
const SWITCHES: &str = "ownerSwitchesSinceCheckpoint";

#[cfg(test)]
mod tests;
