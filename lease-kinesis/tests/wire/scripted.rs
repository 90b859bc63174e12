//! What no emulator answers, but Kinesis does.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use lease_kinesis::{KinesisSource, ReadFrom, ShardIterator, Source, SourceErrorKind};
use lease_tests::kinesis::client_of;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A server that gives prepared answers, one after the other, and keeps what it was asked.
#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Script {
    fn answer(&self, headers: &HeaderMap, body: &str) -> (StatusCode, String) {
        let operation = headers["x-amz-target"].to_str().unwrap().split('.').next_back().unwrap();
        let body = serde_json::from_str(body).unwrap();
        self.asked.lock().unwrap().push((operation.to_owned(), body));
        let answer = self.answers.lock().unwrap().pop_front();
        let (status, body) =
            answer.unwrap_or_else(|| (500, json!({ "__type": "NothingPrepared" })));
        (StatusCode::from_u16(status).unwrap(), body.to_string())
    }

    fn asked(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn operations(&self) -> Vec<String> {
        self.asked().into_iter().map(|(operation, _)| operation).collect()
    }
}

/// A source that is given `answers`.
async fn source_of(
    stream: &str,
    answers: impl IntoIterator<Item = (u16, Value)>,
) -> (KinesisSource, Script) {
    let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
    let script = Script { answers, asked: Arc::default() };
    let answering = script.clone();
    let app = Router::new()
        .fallback(async move |headers: HeaderMap, body: String| answering.answer(&headers, &body));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client_of(listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
    (KinesisSource::new(&client, stream), script)
}

fn shard(number: u32, hash_keys: (&str, &str)) -> Value {
    json!({
        "ShardId": format!("shardId-{number:012}"),
        "HashKeyRange": { "StartingHashKey": hash_keys.0, "EndingHashKey": hash_keys.1 },
        "SequenceNumberRange": { "StartingSequenceNumber": format!("{number}7") },
    })
}

fn refusal(code: &str, message: &str) -> (u16, Value) {
    (400, json!({ "__type": code, "message": message }))
}

/// What a stream says of its consumer.
fn described(status: &str) -> (u16, Value) {
    let consumer = json!({
        "ConsumerName": "billing",
        "ConsumerARN": format!("{ARN}/consumer/billing:1"),
        "ConsumerStatus": status,
        "ConsumerCreationTimestamp": 1,
        "StreamARN": ARN,
    });
    (200, json!({ "ConsumerDescription": consumer }))
}

const ARN: &str = "arn:aws:kinesis:us-east-1:123456789012:stream/orders";

#[tokio::test]
async fn all_pages_of_a_list_are_one() {
    let (source, script) = source_of(
        "orders",
        [
            (200, json!({ "Shards": [shard(0, ("0", "9"))], "NextToken": "more" })),
            (200, json!({ "Shards": [shard(1, ("10", "19"))], "NextToken": "and more" })),
            (200, json!({ "Shards": [shard(2, ("20", "29"))] })),
        ],
    )
    .await;

    let shards = source.shards().await.unwrap();

    assert_eq!(shards.len(), 3);
    let asked: Vec<_> = script.asked().into_iter().map(|(_, body)| body).collect();
    assert_eq!(
        asked,
        [
            json!({ "StreamName": "orders" }),
            json!({ "NextToken": "more" }),
            json!({ "NextToken": "and more" }),
        ],
    );
}

#[tokio::test]
async fn a_list_whose_place_is_forgotten_is_begun_anew() {
    let (source, script) = source_of(
        "orders",
        [
            (200, json!({ "Shards": [shard(0, ("0", "9"))], "NextToken": "more" })),
            refusal("ExpiredNextTokenException", "too late"),
            (200, json!({ "Shards": [shard(0, ("0", "9"))], "NextToken": "more" })),
            (200, json!({ "Shards": [shard(1, ("10", "19"))] })),
        ],
    )
    .await;

    let shards = source.shards().await.unwrap();

    assert_eq!(shards.len(), 2, "none twice: {shards:?}");
    assert_eq!(script.asked()[2].1, json!({ "StreamName": "orders" }));
}

#[tokio::test]
async fn part_of_a_list_is_no_answer() {
    let throttled = refusal("LimitExceededException", "slow down");
    let first = (200, json!({ "Shards": [shard(0, ("0", "9"))], "NextToken": "more" }));
    let (source, script) = source_of("orders", [first, throttled]).await;

    let error = source.shards().await.unwrap_err();

    assert_eq!(error.kind(), SourceErrorKind::Throttled);
    assert_eq!(script.operations().len(), 2, "retries are the reader's");
}

#[tokio::test]
async fn the_end_of_a_merged_shard_tells_its_child_and_both_parents() {
    let child = json!({
        "ShardId": "shardId-000000000002",
        "ParentShards": ["shardId-000000000000", "shardId-000000000001"],
        "HashKeyRange": { "StartingHashKey": "0", "EndingHashKey": "19" },
    });
    let record = json!({
        "SequenceNumber": "49590338271490256608559692538361571095921575989136588898",
        "ApproximateArrivalTimestamp": 1_735_689_600.123,
        "Data": "aGVsbG8=",
        "PartitionKey": "key",
    });
    let (source, script) = source_of(
        ARN,
        [
            (
                200,
                json!({
                    "Records": [record],
                    "NextShardIterator": "further",
                    "MillisBehindLatest": 1_500,
                }),
            ),
            (
                200,
                json!({
                    "Records": [],
                    "NextShardIterator": null,
                    "MillisBehindLatest": 0,
                    "ChildShards": [child],
                }),
            ),
        ],
    )
    .await;

    let fetched = source.fetch(&ShardIterator::new("here"), 10).await.unwrap();
    let end = source.fetch(&fetched.next.unwrap(), 10).await.unwrap();

    assert_eq!(fetched.behind, Duration::from_millis(1_500));
    assert_eq!(&fetched.records[0].data[..], b"hello");
    assert_eq!(fetched.records[0].arrived, Some(1_735_689_600_123));
    assert!(end.next.is_none());
    assert_eq!(end.children[0].parents.len(), 2);
    assert_eq!(end.children[0].hash_keys.last(), 19);
    let asked = json!({ "ShardIterator": "further", "StreamARN": ARN, "Limit": 10 });
    assert_eq!(script.asked()[1].1, asked);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_waited_for_only_so_long() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client_of(listener.local_addr().unwrap());
    let source = KinesisSource::new(&client, "orders");
    let source = source.with_request_timeout(Duration::from_millis(100));

    let error = source.shards().await.unwrap_err();

    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "ListShards of stream orders: no answer within 100ms");
}

#[tokio::test]
async fn a_consumer_is_registered_once_and_waited_for() {
    let (source, script) = source_of(
        ARN,
        [
            refusal("ResourceNotFoundException", "no such consumer"),
            // Another worker was faster.
            refusal("ResourceInUseException", "there is one"),
            described("CREATING"),
            described("ACTIVE"),
            refusal("ResourceInUseException", "subscribed a moment ago"),
            refusal("ResourceNotFoundException", "the shard"),
            (200, json!({ "Shards": [shard(1, ("0", "9"))] })),
        ],
    )
    .await;
    let source = source.with_consumer("billing");
    let gone = "shardId-000000000000".parse().unwrap();

    let throttled = source.subscribe(&gone, &ReadFrom::Latest).await.map(drop).unwrap_err();
    let gone = source.subscribe(&gone, &ReadFrom::Timestamp(1_500)).await.map(drop).unwrap_err();

    assert_eq!(throttled.kind(), SourceErrorKind::Throttled);
    assert_eq!(gone.kind(), SourceErrorKind::NoSuchShard);
    let asked = script.asked();
    let operations: Vec<_> = asked.iter().map(|(operation, _)| operation.as_str()).collect();
    assert_eq!(
        operations,
        [
            "DescribeStreamConsumer",
            "RegisterStreamConsumer",
            "DescribeStreamConsumer",
            "DescribeStreamConsumer",
            "SubscribeToShard",
            "SubscribeToShard",
            "ListShards",
        ],
    );
    assert_eq!(
        asked[5].1,
        json!({
            "ConsumerARN": format!("{ARN}/consumer/billing:1"),
            "ShardId": "shardId-000000000000",
            "StartingPosition": { "Type": "AT_TIMESTAMP", "Timestamp": 1.5 },
        }),
    );
}

/// Whatever the text of an error says: the shard is listed, so it is not what is missing.
#[tokio::test]
async fn a_consumer_that_was_removed_is_registered_anew() {
    let not_found = || refusal("ResourceNotFoundException", "Shard 0 does not exist");
    let (source, script) = source_of(
        ARN,
        [
            described("ACTIVE"),
            not_found(),
            (200, json!({ "Shards": [shard(0, ("0", "9"))] })),
            not_found(),
            (200, json!({})),
            described("ACTIVE"),
            refusal("ResourceInUseException", "subscribed a moment ago"),
        ],
    )
    .await;
    let source = source.with_consumer("billing");
    let shard = "shardId-000000000000".parse().unwrap();

    let removed = source.subscribe(&shard, &ReadFrom::Latest).await.map(drop).unwrap_err();
    let again = source.subscribe(&shard, &ReadFrom::Latest).await.map(drop).unwrap_err();

    assert_eq!(removed.kind(), SourceErrorKind::Unavailable);
    let cause = std::error::Error::source(&removed).unwrap().to_string();
    assert!(cause.ends_with("consumer billing is not found"), "{cause}");
    assert_eq!(again.kind(), SourceErrorKind::Throttled);
    assert_eq!(
        script.operations(),
        [
            "DescribeStreamConsumer",
            "SubscribeToShard",
            "ListShards",
            "DescribeStreamConsumer",
            "RegisterStreamConsumer",
            "DescribeStreamConsumer",
            "SubscribeToShard",
        ],
    );
}

/// One type of error tells of all that may be missing; its text is for people.
#[tokio::test]
async fn the_list_of_shards_tells_whether_a_shard_is_missing_or_its_stream() {
    let not_found = |text| refusal("ResourceNotFoundException", text);
    let listed = |number| (200, json!({ "Shards": [shard(number, ("0", "9"))] }));
    let misleading = "Shard shardId-000000000000 does not exist";
    for (then, expected) in [
        (listed(1), SourceErrorKind::NoSuchShard),
        (not_found(misleading), SourceErrorKind::NoSuchStream),
        // Nothing is known then, and above all not that the shard has gone.
        (listed(0), SourceErrorKind::Unavailable),
        (refusal("LimitExceededException", "slow down"), SourceErrorKind::Throttled),
    ] {
        let (source, script) = source_of("orders", [not_found(misleading), then]).await;
        let shard = "shardId-000000000000".parse().unwrap();

        let error = source.iterator(&shard, &ReadFrom::Latest).await.unwrap_err();

        assert_eq!(error.kind(), expected);
        assert_eq!(script.operations(), ["GetShardIterator", "ListShards"]);
    }
}

#[tokio::test]
async fn a_source_without_a_consumer_pushes_nothing() {
    let (source, script) = source_of("orders", []).await;
    let shard = "shardId-000000000000".parse().unwrap();

    let error = source.subscribe(&shard, &ReadFrom::Latest).await.map(drop).unwrap_err();

    assert_eq!(error.kind(), SourceErrorKind::Unsupported);
    assert!(script.operations().is_empty());
}

#[tokio::test]
async fn a_stream_knows_its_account_and_birthday() {
    let summary = json!({
        "StreamName": "orders",
        "StreamARN": ARN,
        "StreamStatus": "ACTIVE",
        "RetentionPeriodHours": 24,
        "StreamCreationTimestamp": 1_735_689_600.5,
        "EnhancedMonitoring": [],
        "OpenShardCount": 1,
    });
    let answer = (200, json!({ "StreamDescriptionSummary": summary }));
    let (source, _) = source_of("orders", [answer]).await;

    let id = source.id().await.unwrap();

    assert_eq!(id.to_string(), "123456789012:orders:1735689600");
}
