use lease_core::{Holder, Number};
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
fn row_of_kinesis_client_library_is_read() {
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
    assert_eq!(row.holder, None, "the store decides the holder, not the owner attribute");
}

#[test]
fn words_of_kinesis_client_library_are_positions() {
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
fn timestamp_is_read_from_its_own_attribute() {
    let word = || ("checkpoint", Value::from("AT_TIMESTAMP"));

    let row = record(attributes([word(), ("checkpointTimestamp", 5.into())]));
    assert_eq!(position(&row).unwrap(), Position::AtTimestamp(5));
    assert!(position(&record(attributes([word()]))).is_err(), "the time is missing");
}

#[test]
fn latest_with_a_time_is_the_time_of_the_first_start() {
    let read = |word: &str, at: Value| {
        let attributes = attributes([("checkpoint", word.into()), ("checkpointTimestamp", at)]);
        ShardRow::read(name(), record(attributes))
    };

    let latest = read("LATEST", 5.into()).unwrap();
    assert_eq!((latest.checkpoint, latest.is_latest), (Position::AtTimestamp(5), true));
    let at_time = read("AT_TIMESTAMP", 5.into()).unwrap();
    assert_eq!((at_time.checkpoint, at_time.is_latest), (Position::AtTimestamp(5), false));
    assert!(read("LATEST", "5".into()).is_err(), "a default time would skip records");
}

#[test]
fn invalid_attribute_is_an_error() {
    let good = || new_row(&shard(&["shardId-0"]), &number("7", 1));
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
fn invalid_attribute_is_quoted_and_truncated() {
    let cause = |checkpoint: Option<Value>| {
        let checkpoint = checkpoint.map(|value| ("checkpoint".to_owned(), value));
        let error = position(&record(checkpoint.into_iter().collect())).unwrap_err();
        std::error::Error::source(&error).unwrap().to_string()
    };
    let row = "row orders/shards/shardId-1 has";
    let odd = format!("{row} an attribute \"checkpoint\" that cannot be parsed: ");

    assert_eq!(cause(None), format!("{row} no attribute \"checkpoint\""));
    assert_eq!(cause(Some("nowhere".into())), format!("{odd}Text(\"nowhere\")"));
    assert_eq!(cause(Some(7.into())), format!("{odd}Number(7)"));
    let long = cause(Some("ß".repeat(100_000).into()));
    assert_eq!(long, format!("{odd}Text(\"{} and more", "ß".repeat(94)));
}

#[test]
fn absent_attributes_have_defaults() {
    let row = record(attributes([("checkpoint", "7".into())]));

    let row = ShardRow::read(name(), row).unwrap();

    assert_eq!(row.checkpoint, number("7", 0));
    assert_eq!(row.hash_keys, HashKeyRange::ALL);
    assert!(row.parents.is_empty() && row.children.is_empty());
    assert_eq!(row.switches, 0);
}

#[test]
fn invalid_switch_count_is_ignored() {
    for (value, expected) in
        [(Value::from(-1), 0), (decimal("99999999999"), u32::MAX), (Value::from("many"), 0)]
    {
        let row = attributes([("checkpoint", "7".into()), ("ownerSwitchesSinceCheckpoint", value)]);
        assert_eq!(ShardRow::read(name(), record(row)).unwrap().switches, expected);
    }
}

#[test]
fn new_row_describes_its_shard() {
    let shard = shard(&["shardId-7", "shardId-8"]);

    let row = ShardRow::read(name(), record(new_row(&shard, &Position::TrimHorizon))).unwrap();

    assert_eq!(row.parents, shard.parents.iter().cloned().collect());
    assert_eq!(row.hash_keys, shard.hash_keys);
    assert_eq!(row.checkpoint, Position::TrimHorizon);
    assert_eq!((row.switches, row.holder), (0, None));
    // DynamoDB stores no empty sets.
    assert!(!new_row(&self::shard(&[]), &Position::TrimHorizon).contains_key(PARENTS));
}

#[test]
fn holder_is_read_from_store() {
    let lessee = Lessee::new("worker-1").unwrap();
    let mut row = record(new_row(&shard(&[]), &Position::TrimHorizon));
    row.holder = Some(Holder::new(lessee.clone(), None));

    assert_eq!(ShardRow::read(name(), row).unwrap().holder, Some(lessee));
}

#[test]
fn children_are_added() {
    let mut attributes = new_row(&shard(&[]), &Position::TrimHorizon);
    let children = BTreeSet::from([id("shardId-2"), id("shardId-3")]);

    children_change(&children).apply(&mut attributes);
    assert_eq!(ShardRow::read(name(), record(attributes.clone())).unwrap().children, children);
    children_change(&BTreeSet::new()).apply(&mut attributes);
    assert_eq!(ShardRow::read(name(), record(attributes)).unwrap().children, children);
}

#[test]
fn checkpoint_resets_switches() {
    let mut attributes = new_row(&shard(&[]), &Position::TrimHorizon);
    switched(3).apply(&mut attributes);
    assert_eq!(ShardRow::read(name(), record(attributes.clone())).unwrap().switches, 3);

    checkpoint(&checkpoint_attributes(&Position::TrimHorizon), &number("7", 0))
        .apply(&mut attributes);

    assert_eq!(ShardRow::read(name(), record(attributes)).unwrap().switches, 0);
}

fn any_position() -> impl Strategy<Value = Position> {
    // A table stores signed integers, so larger numbers cannot occur.
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
    fn written_position_is_read_back(written in any_position()) {
        let attributes = new_row(&shard(&[]), &written);

        prop_assert_eq!(position(&record(attributes)).unwrap(), written);
    }

    #[test]
    fn checkpoint_changes_only_the_expected_row(
        before in any_position(),
        other in any_position(),
        next in any_position(),
    ) {
        let change = checkpoint(&checkpoint_attributes(&before), &next);
        let mut attributes = new_row(&shard(&[]), &before);

        prop_assert!(change.fits(&attributes));
        prop_assert_eq!(change.fits(&new_row(&shard(&[]), &other)), before == other);
        change.apply(&mut attributes);
        // No attribute of the previous checkpoint remains.
        prop_assert_eq!(&attributes, &new_row(&shard(&[]), &next));
        prop_assert_eq!(position(&record(attributes)).unwrap(), next);
    }
}
