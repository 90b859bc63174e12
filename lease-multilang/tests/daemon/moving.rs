//! The daemon continues a lease table of the Kinesis Client Library (KCL) and keeps it valid for
//! KCL.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};
use aws_sdk_kinesis::types::ShardIteratorType;
use lease_kinesis::SequenceNumber;
use lease_test_servers::kinesis;

use crate::notes::Notes;
use crate::place::{Place, raw};

type Row = HashMap<String, AttributeValue>;

#[tokio::test(flavor = "multi_thread")]
async fn kcl_2_table_is_continued_and_stays_valid() {
    let pending = "49590338271490256608559692540925702759324208523137515700";
    let row = [
        ("pendingCheckpoint", s(pending)),
        ("pendingCheckpointSubSequenceNumber", n(0)),
        ("pendingCheckpointState", AttributeValue::B(Blob::new("theirs"))),
    ];
    is_continued_and_stays_valid(&row).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kcl_3_table_is_continued_and_stays_valid() {
    let row = [
        ("throughputKBps", AttributeValue::N("12.5".to_owned())),
        // KCL was stopped during a hand-over.
        ("checkpointOwner", s("9b1f2b0e-52a7-4f0e-8f39-0f6a5c1f3a10")),
    ];
    is_continued_and_stays_valid(&row).await;
}

/// The rows were created under other initial positions.
#[tokio::test(flavor = "multi_thread")]
async fn unread_shard_is_announced_as_its_row_shows() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await;
    create_table(&place, "leaseKey").await;
    let mut expected = BTreeMap::new();
    for (shard, word) in place.stream.open_shards().await.iter().zip(["AT_TIMESTAMP", "LATEST"]) {
        let row = Row::from([
            ("leaseKey".to_owned(), s(shard.id.as_str())),
            ("leaseCounter".to_owned(), n(COUNTER)),
            ("ownerSwitchesSinceCheckpoint".to_owned(), n(0)),
            ("checkpoint".to_owned(), s(word)),
            ("checkpointSubSequenceNumber".to_owned(), n(0)),
            ("checkpointTimestamp".to_owned(), n(1_700_000_000_000)),
        ]);
        let request = place.dynamodb().put_item().table_name("shop").set_item(Some(row));
        request.send().await.unwrap();
        expected.insert(shard.id.to_string(), word.to_owned());
    }

    let daemon = place.start("one");
    let both = |notes: &Notes| notes.readers().len() == 2;
    let notes = place.until("each shard has a child process", &[&daemon], both).await;

    let begun = notes.of("begun").into_iter();
    let begun = begun.map(|note| (note.shard.clone(), note.start_position().to_owned()));
    assert_eq!(begun.collect::<BTreeMap<_, _>>(), expected, "TRIM_HORIZON is configured");
    daemon.stop().await;
}

/// Users of the daemon change properties, not code.
#[tokio::test(flavor = "multi_thread")]
async fn refusal_of_foreign_table_names_the_property() {
    let place = Place::of_shards(1, "sh").await;
    create_table(&place, "orderId").await;

    let mut daemon = place.start("one");
    daemon.ended().await;

    let log = daemon.log();
    for text in ["tableName = shop", "has the key (orderId S HASH)", "so correct the name"] {
        assert!(log.contains(text), "{text:?} is not in\n{log}");
    }
    assert!(!log.contains('`'), "the log names code\n{log}");
}

/// Each shard was read to its middle. All rows also have the attributes `beside`.
async fn is_continued_and_stays_valid(beside: &[(&str, AttributeValue)]) {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await;
    let producer = place.stream.produce();
    producer.has_put_more(60).await;
    producer.end().await;
    let in_the_middle = leave_behind(&place, beside).await;

    let daemon = place.start("one");
    place
        .until("each shard has a child process", &[&daemon], |notes| notes.readers().len() == 2)
        .await;
    let shards = place.stream.open_shards().await;
    place.stream.split(&shards[0]).await;
    let producer = place.stream.produce();
    producer.has_put_more(60).await;
    producer.end().await;
    let mut expected = records(&place).await;
    for (shard, checkpoint) in &in_the_middle {
        let all = expected.get_mut(shard).unwrap();
        assert!(all.contains(checkpoint), "{shard}");
        all.retain(|record| record > checkpoint);
    }
    let count: usize = expected.values().map(Vec::len).sum();
    place.until("the rest is read", &[&daemon], |notes| notes.distinct() >= count).await;
    daemon.until_logged("shard read to its end").await;
    daemon.stop().await;

    let notes = place.notes();
    let mut read: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for note in notes.of("record") {
        read.entry(note.shard.clone()).or_default().push(note.sequence());
    }
    assert_eq!(read, expected, "\n{notes}");
    let rows = rows(&place).await;
    let keys: BTreeSet<_> = rows.keys().cloned().collect();
    let shards = place.stream.shards().await;
    assert_eq!(keys, shards.iter().map(|shard| shard.id.to_string()).collect());
    for (key, row) in &rows {
        is_valid_for_kcl(row);
        assert!(!row.contains_key("leaseOwner"), "the lease was released: {row:?}");
        let last = read[key].last().unwrap().to_string();
        let is_over = shards.iter().any(|shard| shard.id.as_str() == key && !shard.is_open());
        let upto = if is_over { "SHARD_END" } else { &last };
        assert_eq!(row["checkpoint"], s(upto), "{row:?}");
        if let Some(before) = in_the_middle.get(key) {
            assert_ne!(&last, &before.to_string());
            assert!(number(&row["leaseCounter"]) > COUNTER, "a worker of KCL sees no new owner");
            for (name, value) in beside {
                // As in KCL, a checkpoint replaces a pending checkpoint, and a new owner ends a
                // hand-over.
                let is_kept = !name.starts_with("pending") && *name != "checkpointOwner";
                let kept = is_kept.then_some(value);
                assert_eq!(row.get(*name), kept, "{row:?}");
            }
        } else {
            assert_eq!(row["parentShardId"], AttributeValue::Ss(vec![shards_parent(&rows)]));
        }
    }
}

/// Creates a table in KCL's format. The first row has an owner that no longer runs. Returns the checkpoints.
async fn leave_behind(
    place: &Place,
    beside: &[(&str, AttributeValue)],
) -> BTreeMap<String, SequenceNumber> {
    let client = place.dynamodb();
    create_table(place, "leaseKey").await;
    let mut checkpoints = BTreeMap::new();
    let records = records(place).await;
    for (index, shard) in place.stream.open_shards().await.into_iter().enumerate() {
        let of_shard = &records[shard.id.as_str()];
        let checkpoint = of_shard[of_shard.len() / 2].clone();
        let mut row = Row::from([
            ("leaseKey".to_owned(), s(shard.id.as_str())),
            ("leaseCounter".to_owned(), n(COUNTER)),
            ("ownerSwitchesSinceCheckpoint".to_owned(), n(1)),
            ("checkpoint".to_owned(), s(&checkpoint.to_string())),
            ("checkpointSubSequenceNumber".to_owned(), n(0)),
            ("startingHashKey".to_owned(), s(&shard.hash_keys.first().to_string())),
            ("endingHashKey".to_owned(), s(&shard.hash_keys.last().to_string())),
        ]);
        if index == 0 {
            row.insert("leaseOwner".to_owned(), s("3f0f8c1e-7d6a-4c55-9a3a-2f1f4c2f9b77"));
        }
        row.extend(beside.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let request = client.put_item().table_name("shop").set_item(Some(row));
        request.send().await.unwrap();
        checkpoints.insert(shard.id.to_string(), checkpoint);
    }
    checkpoints
}

async fn create_table(place: &Place, key: &str) {
    let client = place.dynamodb();
    let attribute = AttributeDefinition::builder().attribute_name(key);
    let attribute = attribute.attribute_type(ScalarAttributeType::S).build().unwrap();
    let key = KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash);
    let request = client.create_table().table_name("shop").billing_mode(BillingMode::PayPerRequest);
    let request = request.attribute_definitions(attribute).key_schema(key.build().unwrap());
    request.send().await.unwrap();
}

async fn records(place: &Place) -> BTreeMap<String, Vec<SequenceNumber>> {
    let client = kinesis::client_of(place.stream.address());
    let mut records = BTreeMap::new();
    for shard in place.stream.shards().await {
        let request = client.get_shard_iterator().stream_name("orders").shard_id(shard.id.as_str());
        let request = request.shard_iterator_type(ShardIteratorType::TrimHorizon);
        let mut next = request.send().await.unwrap().shard_iterator;
        let mut of_shard = Vec::new();
        while let Some(iterator) = next {
            let got = client.get_records().shard_iterator(iterator).send().await.unwrap();
            let sequences = got.records.iter().map(aws_sdk_kinesis::types::Record::sequence_number);
            of_shard.extend(sequences.map(|number| number.parse::<SequenceNumber>().unwrap()));
            next = got.next_shard_iterator.filter(|_| got.millis_behind_latest != Some(0));
        }
        records.insert(shard.id.to_string(), of_shard);
    }
    records
}

async fn rows(place: &Place) -> BTreeMap<String, Row> {
    let request = place.dynamodb().scan().table_name("shop").consistent_read(true);
    let rows = request.send().await.unwrap().items.unwrap();
    rows.into_iter().map(|row| (row["leaseKey"].as_s().unwrap().clone(), row)).collect()
}

/// Each attribute must have KCL's type, and the row must have all attributes that KCL requires.
fn is_valid_for_kcl(row: &Row) {
    for needed in ["leaseCounter", "checkpoint", "checkpointSubSequenceNumber"] {
        assert!(row.contains_key(needed), "no {needed} in {row:?}");
    }
    for (name, value) in row {
        let is_right = match &**name {
            "leaseKey" | "leaseOwner" | "checkpoint" | "startingHashKey" | "endingHashKey"
            | "pendingCheckpoint" => value.is_s(),
            "leaseCounter"
            | "checkpointSubSequenceNumber"
            | "ownerSwitchesSinceCheckpoint"
            | "pendingCheckpointSubSequenceNumber"
            | "throughputKBps" => value.is_n(),
            "parentShardId" | "childShardIds" => value.is_ss(),
            "pendingCheckpointState" => value.is_b(),
            ours => ours.starts_with("grant"),
        };
        assert!(is_right, "{name} = {value:?}");
    }
}

fn shards_parent(rows: &BTreeMap<String, Row>) -> String {
    let mut split = rows.iter().filter(|(_, row)| row.contains_key("childShardIds"));
    split.next().unwrap().0.clone()
}

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn number(value: &AttributeValue) -> u64 {
    value.as_n().unwrap().parse().unwrap()
}

const COUNTER: u64 = 90;
