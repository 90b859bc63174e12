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
    pub(crate) hash_keys: HashKeyRange,
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
    Change::new().set(SWITCHES, switches)
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
const SWITCHES: &str = "ownerSwitchesSinceCheckpoint";

#[cfg(test)]
mod tests {
    use lease_core::{FencingToken, Holder, Number};
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> ShardId {
        text.parse().unwrap()
    }

    fn name() -> ShardName {
        ShardName { stream: None, shard: id("shardId-1") }
    }

    fn record(attributes: Attributes) -> LeaseRecord {
        LeaseRecord::new(LeaseKey::new("orders/shards/shardId-1").unwrap(), None, None, attributes)
    }

    fn attributes<const N: usize>(attributes: [(&str, Value); N]) -> Attributes {
        attributes.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn decimal(text: &str) -> Value {
        Value::Number(text.parse::<Number>().unwrap())
    }

    fn set<const N: usize>(texts: [&str; N]) -> Value {
        Value::TextSet(texts.map(str::to_owned).into())
    }

    fn number(text: &str, sub_sequence: u64) -> Position {
        Position::Record(RecordNumber { sequence: text.parse().unwrap(), sub_sequence })
    }

    fn shard(parents: &[&str]) -> Shard {
        Shard {
            id: id("shardId-1"),
            parents: parents.iter().map(|parent| id(parent)).collect(),
            hash_keys: HashKeyRange::new(5, u128::MAX).unwrap(),
            begins: "49590338271490256608559692538361571095921575989136588898".parse().unwrap(),
            ends: None,
        }
    }

    #[test]
    fn a_row_as_the_kinesis_client_library_makes_it_is_understood() {
        let longest = "170141183460469231731687303715884105727";
        let all = attributes([
            ("leaseCounter", 12.into()),
            ("leaseOwner", "host-1".into()),
            ("checkpoint", "49590338271490256608559692540925702759324208523137515618".into()),
            ("checkpointSubSequenceNumber", 3.into()),
            ("ownerSwitchesSinceCheckpoint", 2.into()),
            ("parentShardId", set(["shardId-7", "shardId-8"])),
            ("childShardIds", set(["shardId-9"])),
            ("startingHashKey", "0".into()),
            ("endingHashKey", longest.into()),
        ]);

        let row = ShardRow::read(name(), record(all)).unwrap();

        let text = "49590338271490256608559692540925702759324208523137515618";
        assert_eq!(row.checkpoint, number(text, 3));
        assert_eq!(row.parents, BTreeSet::from([id("shardId-7"), id("shardId-8")]));
        assert_eq!(row.children, BTreeSet::from([id("shardId-9")]));
        assert_eq!(row.hash_keys, HashKeyRange::new(0, u128::MAX >> 1).unwrap());
        assert_eq!(row.switches, 2);
        assert_eq!(row.holder, None, "its owner's word is not the store's");
    }

    #[test]
    fn the_words_of_the_kinesis_client_library_are_positions() {
        for (word, expected) in [
            ("TRIM_HORIZON", Position::TrimHorizon),
            ("LATEST", Position::Latest),
            ("SHARD_END", Position::ShardEnd),
            ("0", number("0", 0)),
        ] {
            let row = record(attributes([("checkpoint", word.into())]));
            assert_eq!(position(&row).unwrap(), expected);
        }
    }

    #[test]
    fn a_time_is_told_beside_its_word() {
        let word = || ("checkpoint", Value::from("AT_TIMESTAMP"));

        let row = record(attributes([word(), ("checkpointTimestamp", 5.into())]));
        assert_eq!(position(&row).unwrap(), Position::AtTimestamp(5));
        assert!(position(&record(attributes([word()]))).is_err(), "nobody knows which");
    }

    #[test]
    fn what_cannot_be_understood_is_an_error_and_never_a_fresh_start() {
        let good = || of_new(&shard(&["shardId-0"]), &number("7", 1));
        let with = |attribute: &str, value: Option<Value>| {
            let mut attributes = good();
            match value {
                Some(value) => attributes.insert(attribute.to_owned(), value),
                None => attributes.remove(attribute),
            };
            ShardRow::read(name(), record(attributes))
        };

        assert!(ShardRow::read(name(), record(good())).is_ok());
        for (attribute, value) in [
            ("checkpoint", None),
            ("checkpoint", Some(Value::Null)),
            ("checkpoint", Some(7.into())),
            ("checkpoint", Some("".into())),
            ("checkpoint", Some("trim_horizon".into())),
            ("checkpoint", Some(" 7".into())),
            ("checkpoint", Some("-7".into())),
            ("checkpoint", Some("7.0".into())),
            ("checkpoint", Some("1".repeat(130).into())),
            ("checkpoint", Some(set(["7"]))),
            ("checkpointSubSequenceNumber", Some("1".into())),
            ("checkpointSubSequenceNumber", Some((-1).into())),
            ("checkpointSubSequenceNumber", Some(decimal("1.5"))),
            ("checkpointSubSequenceNumber", Some(Value::Null)),
            ("parentShardId", Some("shardId-0".into())),
            ("parentShardId", Some(set([""]))),
            ("parentShardId", Some(set(["shard 0"]))),
            ("childShardIds", Some(Value::List(vec!["shardId-0".into()]))),
            ("startingHashKey", Some(5.into())),
            ("startingHashKey", Some("0x5".into())),
            // 2¹²⁸
            ("endingHashKey", Some("340282366920938463463374607431768211456".into())),
            ("endingHashKey", Some("4".into())),
        ] {
            let text = format!("{attribute}: {value:?}");
            let error = with(attribute, value).expect_err(&text);
            assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_quoted_by_its_beginning() {
        let told = |checkpoint: Option<Value>| {
            let checkpoint = checkpoint.map(|value| ("checkpoint".to_owned(), value));
            let error = position(&record(checkpoint.into_iter().collect())).unwrap_err();
            std::error::Error::source(&error).unwrap().to_string()
        };
        let row = "row orders/shards/shardId-1 has";
        let odd = format!("{row} an attribute \"checkpoint\" that cannot be understood: ");

        assert_eq!(told(None), format!("{row} no attribute \"checkpoint\""));
        assert_eq!(told(Some("nowhere".into())), format!("{odd}Text(\"nowhere\")"));
        assert_eq!(told(Some(7.into())), format!("{odd}Number(7)"));
        let long = told(Some("ß".repeat(100_000).into()));
        assert_eq!(long, format!("{odd}Text(\"{} and more", "ß".repeat(94)));
    }

    #[test]
    fn what_may_be_absent_is_as_if_nothing_was_said() {
        let row = record(attributes([("checkpoint", "7".into())]));

        let row = ShardRow::read(name(), row).unwrap();

        assert_eq!(row.checkpoint, number("7", 0));
        assert_eq!(row.hash_keys, HashKeyRange::ALL);
        assert!(row.parents.is_empty() && row.children.is_empty());
        assert_eq!(row.switches, 0);
    }

    #[test]
    fn a_number_of_switches_that_makes_no_sense_does_no_harm() {
        for (value, expected) in
            [(Value::from(-1), 0), (decimal("99999999999"), u32::MAX), (Value::from("many"), 0)]
        {
            let row =
                attributes([("checkpoint", "7".into()), ("ownerSwitchesSinceCheckpoint", value)]);
            assert_eq!(ShardRow::read(name(), record(row)).unwrap().switches, expected);
        }
    }

    #[test]
    fn a_new_row_is_as_its_shard_is() {
        let shard = shard(&["shardId-7", "shardId-8"]);

        let row = ShardRow::read(name(), record(of_new(&shard, &Position::TrimHorizon))).unwrap();

        assert_eq!(row.parents, shard.parents.iter().cloned().collect());
        assert_eq!(row.hash_keys, shard.hash_keys);
        assert_eq!(row.checkpoint, Position::TrimHorizon);
        assert_eq!((row.switches, row.holder), (0, None));
        // DynamoDB keeps no empty sets.
        assert!(!of_new(&self::shard(&[]), &Position::TrimHorizon).contains_key(PARENTS));
    }

    #[test]
    fn who_holds_it_is_the_stores_word() {
        let lessee = Lessee::new("worker-1").unwrap();
        let mut row = record(of_new(&shard(&[]), &Position::TrimHorizon));
        row.holder = Some(Holder::new(lessee.clone(), FencingToken::new(1).unwrap(), None));

        assert_eq!(ShardRow::read(name(), row).unwrap().holder, Some(lessee));
    }

    #[test]
    fn what_a_shard_became_is_added() {
        let mut attributes = of_new(&shard(&[]), &Position::TrimHorizon);
        let children = BTreeSet::from([id("shardId-2"), id("shardId-3")]);

        became(&children).apply(&mut attributes);
        assert_eq!(ShardRow::read(name(), record(attributes.clone())).unwrap().children, children);
        // An answer that tells of none says nothing.
        became(&BTreeSet::new()).apply(&mut attributes);
        assert_eq!(ShardRow::read(name(), record(attributes)).unwrap().children, children);
    }

    #[test]
    fn a_checkpoint_ends_the_count_of_switches() {
        let mut attributes = of_new(&shard(&[]), &Position::TrimHorizon);
        switched(3).apply(&mut attributes);
        assert_eq!(ShardRow::read(name(), record(attributes.clone())).unwrap().switches, 3);

        checkpoint(&words(&Position::TrimHorizon), &number("7", 0)).apply(&mut attributes);

        assert_eq!(ShardRow::read(name(), record(attributes)).unwrap().switches, 0);
    }

    fn a_position() -> impl Strategy<Value = Position> {
        // As far as a number of a table is read as one.
        let whole = || 0..=i64::MAX.cast_unsigned();
        prop_oneof![
            whole().prop_map(Position::AtTimestamp),
            Just(Position::TrimHorizon),
            Just(Position::Latest),
            Just(Position::ShardEnd),
            ("[0-9]{1,129}", whole()).prop_map(|(text, sub_sequence)| number(&text, sub_sequence)),
        ]
    }

    proptest! {
        #[test]
        fn every_position_is_read_as_it_was_written(written in a_position()) {
            let attributes = of_new(&shard(&[]), &written);

            prop_assert_eq!(position(&record(attributes)).unwrap(), written);
        }

        #[test]
        fn a_checkpoint_moves_the_row_that_it_was_meant_for_and_no_other(
            before in a_position(),
            other in a_position(),
            next in a_position(),
        ) {
            let change = checkpoint(&words(&before), &next);
            let mut attributes = of_new(&shard(&[]), &before);

            prop_assert!(change.fits(&attributes));
            prop_assert_eq!(change.fits(&of_new(&shard(&[]), &other)), before == other);
            change.apply(&mut attributes);
            // Nothing of the one before is left.
            prop_assert_eq!(&attributes, &of_new(&shard(&[]), &next));
            prop_assert_eq!(position(&record(attributes)).unwrap(), next);
        }
    }
}
