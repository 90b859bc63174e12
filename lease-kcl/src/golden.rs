//! Reads rows as each version of KCL writes them, from files. The rows match KCL's `DynamoDBLeaseSerializer`,
//! `DynamoDBMultiStreamLeaseSerializer`, and KCL 3.5's packages `coordinator` and `worker/metricstats`.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use lease_aws::table_client::RawItem;
use lease_core::store::{Claim, LeaseRecord, Nonce};
use lease_core::{FencingToken, StoreErrorKind};
use lease_kinesis::extension::shard_row::ShardRow;
use lease_kinesis::{Application, InitialPosition, Position, RecordNumber, ShardId};
use serde_json::Value as Json;

use crate::row::{Row, key_of};
use crate::write;

const KCL_1: &str = include_str!("golden/kcl-1.json");
const KCL_2: &str = include_str!("golden/kcl-2.json");
const KCL_2_STREAMS: &str = include_str!("golden/kcl-2-multi-stream.json");
const KCL_3: &str = include_str!("golden/kcl-3.json");
const KCL_3_5: &str = include_str!("golden/kcl-3.5.json");

fn rows(file: &str) -> Vec<RawItem> {
    let rows: Vec<BTreeMap<String, Json>> = serde_json::from_str(file).unwrap();
    let row = |row: BTreeMap<String, Json>| {
        row.into_iter().map(|(name, value)| (name, attribute(&value))).collect()
    };
    rows.into_iter().map(row).collect()
}

/// A value in DynamoDB's own JSON.
fn attribute(value: &Json) -> AttributeValue {
    let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
    let texts = || value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned());
    let text = || value.as_str().unwrap().to_owned();
    match kind.as_str() {
        "S" => AttributeValue::S(text()),
        "N" => AttributeValue::N(text()),
        "B" => AttributeValue::B(Blob::new(text())),
        "SS" => AttributeValue::Ss(texts().collect()),
        "L" => AttributeValue::L(value.as_array().unwrap().iter().map(attribute).collect()),
        "M" => {
            let values = value.as_object().unwrap().iter();
            AttributeValue::M(
                values.map(|(name, value)| (name.clone(), attribute(value))).collect(),
            )
        }
        other => panic!("type {other}"),
    }
}

fn read(raw: &RawItem) -> Option<Row> {
    let key = key_of(raw).unwrap().to_owned();
    Row::read(&key, raw.clone(), InitialPosition::Latest).unwrap()
}

fn shards(file: &str) -> BTreeMap<String, ShardRow> {
    let application: Application = "orders".parse().unwrap();
    let rows = rows(file).into_iter().filter_map(|raw| Some((raw.clone(), read(&raw)?)));
    rows.map(|(raw, row)| {
        let lease_key = key_of(&raw).unwrap().to_owned();
        let key = format!("{}{lease_key}", application.shards_prefix()).parse().unwrap();
        let record = LeaseRecord::new(key, None, row.token(), row.attributes);
        (lease_key, ShardRow::from_record(&application, record).unwrap().unwrap())
    })
    .collect()
}

fn owner(file: &str, lease_key: &str) -> (Option<String>, Option<String>) {
    let raw = rows(file).into_iter().find(|raw| key_of(raw) == Some(lease_key)).unwrap();
    let row = read(&raw).unwrap();
    let name = |lessee: Option<lease_core::Lessee>| lessee.map(|name| name.as_str().to_owned());
    (name(row.owner), name(row.processor))
}

fn number(digits: &str, sub_sequence: u64) -> Position {
    let sequence = digits.parse().unwrap();
    Position::Record(RecordNumber { sequence, sub_sequence })
}

#[test]
fn rows_of_kcl_1_are_read() {
    let shards = shards(KCL_1);

    let first = &shards["shardId-000000000000"];
    assert_eq!(first.checkpoint, Position::ShardEnd);
    let second = &shards["shardId-000000000001"];
    let digits = "49590338271490256608559692540925702759324208523137515618";
    assert_eq!(second.checkpoint, number(digits, 3));
    let parents: Vec<_> = second.parents.iter().map(ShardId::as_str).collect();
    assert_eq!(parents, ["shardId-000000000000"]);
    assert_eq!(second.switches, 2);
    assert_eq!(owner(KCL_1, "shardId-000000000001").0.as_deref(), Some("host-1:5e8d"));
    assert_eq!(owner(KCL_1, "shardId-000000000000").0, None);
}

#[test]
fn rows_of_kcl_2_are_read() {
    let shards = shards(KCL_2);

    let merged = &shards["shardId-000000000003"];
    assert_eq!(merged.parents.len(), 2);
    assert_eq!(merged.checkpoint, Position::TrimHorizon);
    assert_eq!(merged.hash_keys.last(), u128::MAX);
    assert_eq!(shards["shardId-000000000001"].children, merged_child());
    // This row has a prepared checkpoint. `createLease` writes `pendingCheckpointState` as a number.
    assert_eq!(shards["shardId-000000000004"].checkpoint, Position::Latest);
}

fn merged_child() -> std::collections::BTreeSet<ShardId> {
    ["shardId-000000000003".parse().unwrap()].into()
}

#[test]
fn rows_of_several_streams_are_read() {
    let shards = shards(KCL_2_STREAMS);

    let row = &shards["123456789012:clicks:1700000000:shardId-000000000001"];
    let stream = row.stream.as_ref().map(ToString::to_string);
    assert_eq!(stream.as_deref(), Some("123456789012:clicks:1700000000"));
    assert_eq!(row.shard.as_str(), "shardId-000000000001");
}

#[test]
fn kcl_3_hand_over_has_an_owner_and_a_processor() {
    assert_eq!(shards(KCL_3).len(), 2);

    let (next, current) = owner(KCL_3, "shardId-000000000001");
    assert_eq!(next.as_deref(), Some("worker-b"));
    assert_eq!(current.as_deref(), Some("worker-a"));
    assert_eq!(owner(KCL_3, "shardId-000000000000").1, None);
}

/// KCL 3 assigns a lease under the same condition.
#[test]
fn obtain_expects_owner_and_processor_of_kcl_3_hand_over() {
    let raw = rows(KCL_3).into_iter().find(|raw| key_of(raw) == Some("shardId-000000000001"));
    let seen = read(&raw.unwrap()).unwrap();
    let key = "orders/shards/shardId-000000000001".parse().unwrap();
    let claim = Claim::new(key, "ours".parse().unwrap(), Nonce::random(), Duration::from_secs(10));

    let taken = write::obtain(&claim, FencingToken::new(1).unwrap(), &seen).render(write::column);

    assert_eq!(
        taken.condition,
        "#leaseCounter = :seenCounter AND #leaseOwner = :seenOwner \
         AND attribute_not_exists(#grantNonce) AND #checkpointOwner = :seenProcessor"
    );
    assert_eq!(taken.values[":seenCounter"], AttributeValue::N("61".to_owned()));
    assert_eq!(taken.values[":seenOwner"], AttributeValue::S("worker-b".to_owned()));
    assert_eq!(taken.values[":seenProcessor"], AttributeValue::S("worker-a".to_owned()));
    assert!(taken.update.contains("REMOVE #checkpointOwner"), "{}", taken.update);
}

#[test]
fn rows_of_kcl_3_5_that_are_no_leases_are_skipped() {
    assert_eq!(rows(KCL_3_5).len(), 8);

    let shards = shards(KCL_3_5);
    let keys: Vec<_> = shards.keys().map(String::as_str).collect();
    assert_eq!(keys, ["shardId-000000000000", "shardId-000000000001"]);
}

#[test]
fn at_timestamp_without_time_uses_initial_position() {
    let raw = |word: &str, at: Option<u64>| {
        let mut raw = rows(KCL_1).remove(0);
        raw.insert("checkpoint".to_owned(), AttributeValue::S(word.to_owned()));
        if let Some(at) = at {
            let at = AttributeValue::N(at.to_string());
            raw.insert("checkpointTimestamp".to_owned(), at);
        }
        raw
    };
    let position = |raw: RawItem, initial: InitialPosition| {
        let row = Row::read("shard", raw, initial).unwrap().unwrap();
        let key = "orders/shards/shard".parse().unwrap();
        let record = LeaseRecord::new(key, None, None, row.attributes);
        ShardRow::from_record(&"orders".parse().unwrap(), record).map(|row| row.unwrap().checkpoint)
    };
    let latest = InitialPosition::Latest;

    assert_eq!(position(raw("LATEST", None), latest).unwrap(), Position::Latest);
    assert_eq!(position(raw("LATEST", Some(7)), latest).unwrap(), Position::AtTimestamp(7));
    let at = InitialPosition::AtTimestamp(9);
    assert_eq!(position(raw("AT_TIMESTAMP", None), at).unwrap(), Position::AtTimestamp(9));
    assert_eq!(position(raw("AT_TIMESTAMP", Some(7)), at).unwrap(), Position::AtTimestamp(7));
    assert!(position(raw("AT_TIMESTAMP", None), latest).is_err(), "the time is unknown");
    // After the first checkpoint, the row still has the start time.
    assert_eq!(position(raw("5", Some(7)), latest).unwrap(), number("5", 0));
}

#[test]
fn row_is_ours_until_kcl_increments_its_counter() {
    let n = |number: u64| AttributeValue::N(number.to_string());
    let mut raw = rows(KCL_1).remove(1);
    raw.insert("leaseCounter".to_owned(), n(12));
    raw.insert("grantNonce".to_owned(), AttributeValue::S("a nonce".to_owned()));
    raw.insert("grantToken".to_owned(), n(7));
    raw.insert("grantTtlMs".to_owned(), n(5000));
    raw.insert("grantReservedMs".to_owned(), n(9000));
    raw.insert("grantEvicted".to_owned(), AttributeValue::Bool(true));
    raw.insert("grantCounter".to_owned(), n(12));

    let ours = read(&raw).unwrap();
    raw.insert("leaseCounter".to_owned(), n(13));
    let stolen = read(&raw).unwrap();
    raw.insert("leaseCounter".to_owned(), n(12));
    raw.insert("checkpointOwner".to_owned(), AttributeValue::S("host-1".to_owned()));
    let handed_over = read(&raw).unwrap();

    assert!(ours.is_ours() && ours.evicted());
    assert_eq!(ours.ttl(), Some(Duration::from_secs(5)));
    assert_eq!(ours.reserved(), Some(Duration::from_secs(9)));
    for others in [stolen, handed_over] {
        assert!(!others.is_ours() && !others.evicted());
        assert_eq!((others.ttl(), others.reserved()), (None, None));
        assert_eq!(others.token().map(FencingToken::get), Some(7), "tokens continue");
    }
}

#[test]
fn invalid_attribute_is_named_in_the_error() {
    for (name, value) in [
        ("leaseCounter", None),
        ("leaseCounter", Some(AttributeValue::S("7".to_owned()))),
        ("leaseCounter", Some(AttributeValue::N("-1".to_owned()))),
        ("leaseOwner", Some(AttributeValue::N("7".to_owned()))),
        ("checkpointOwner", Some(AttributeValue::Bool(true))),
        ("entityType", Some(AttributeValue::N("1".to_owned()))),
    ] {
        let mut raw = rows(KCL_1).remove(0);
        match value {
            Some(value) => raw.insert(name.to_owned(), value),
            None => raw.remove(name),
        };

        let error = Row::read("shard", raw, InitialPosition::Latest).unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(name), "{source}");
    }
}
