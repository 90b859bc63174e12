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
        let row = attributes([("checkpoint", "7".into()), ("ownerSwitchesSinceCheckpoint", value)]);
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
