//! Answers of Kinesis that no emulator sends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use lease_kinesis::{KinesisSource, ReadFrom, ShardIterator, Source, SourceErrorKind};
use lease_test_servers::kinesis::client_of;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Script {
    fn answer(&self, headers: &HeaderMap, body: &str) -> (StatusCode, String) {
        let operation = headers["x-amz-target"].to_str().unwrap().split('.').next_back().unwrap();
        let body = serde_json::from_str(body).unwrap();
        self.requests.lock().unwrap().push((operation.to_owned(), body));
        let answer = self.answers.lock().unwrap().pop_front();
        let (status, body) =
            answer.unwrap_or_else(|| (500, json!({ "__type": "NothingPrepared" })));
        (StatusCode::from_u16(status).unwrap(), body.to_string())
    }

    fn requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    fn operations(&self) -> Vec<String> {
        self.requests().into_iter().map(|(operation, _)| operation).collect()
    }
}

async fn source_of(
    stream: &str,
    answers: impl IntoIterator<Item = (u16, Value)>,
) -> (KinesisSource, Script) {
    let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
    let script = Script { answers, requests: Arc::default() };
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

fn error_answer(code: &str, message: &str) -> (u16, Value) {
    (400, json!({ "__type": code, "message": message }))
}

fn consumer_description(status: &str) -> (u16, Value) {
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
async fn pages_of_list_are_joined() {
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
    let requests: Vec<_> = script.requests().into_iter().map(|(_, body)| body).collect();
    assert_eq!(
        requests,
        [
            json!({ "StreamName": "orders" }),
            json!({ "NextToken": "more" }),
            json!({ "NextToken": "and more" }),
        ],
    );
}

#[tokio::test]
async fn list_with_expired_token_is_restarted() {
    let (source, script) = source_of(
        "orders",
        [
            (200, json!({ "Shards": [shard(0, ("0", "9"))], "NextToken": "more" })),
            error_answer("ExpiredNextTokenException", "too late"),
            (200, json!({ "Shards": [shard(0, ("0", "9"))], "NextToken": "more" })),
            (200, json!({ "Shards": [shard(1, ("10", "19"))] })),
        ],
    )
    .await;

    let shards = source.shards().await.unwrap();

    assert_eq!(shards.len(), 2, "no shard is listed twice: {shards:?}");
    assert_eq!(script.requests()[2].1, json!({ "StreamName": "orders" }));
}

#[tokio::test]
async fn partial_list_is_an_error() {
    let throttled = error_answer("LimitExceededException", "slow down");
    let first = (200, json!({ "Shards": [shard(0, ("0", "9"))], "NextToken": "more" }));
    let (source, script) = source_of("orders", [first, throttled]).await;

    let error = source.shards().await.unwrap_err();

    assert_eq!(error.kind(), SourceErrorKind::Throttled);
    assert_eq!(script.operations().len(), 2, "the source does not retry");
}

#[tokio::test]
async fn end_of_merged_shard_reports_child_and_parents() {
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
    let requests = json!({ "ShardIterator": "further", "StreamARN": ARN, "Limit": 10 });
    assert_eq!(script.requests()[1].1, requests);
}

#[tokio::test]
async fn request_without_answer_times_out() {
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
async fn consumer_is_registered_once_and_awaited() {
    let (source, script) = source_of(
        ARN,
        [
            error_answer("ResourceNotFoundException", "no such consumer"),
            // Another worker has registered the consumer after the lookup.
            error_answer("ResourceInUseException", "there is one"),
            consumer_description("CREATING"),
            consumer_description("ACTIVE"),
            error_answer("ResourceInUseException", "subscribed a moment ago"),
            error_answer("ResourceNotFoundException", "the shard"),
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
    let requests = script.requests();
    let operations: Vec<_> = requests.iter().map(|(operation, _)| operation.as_str()).collect();
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
        requests[5].1,
        json!({
            "ConsumerARN": format!("{ARN}/consumer/billing:1"),
            "ShardId": "shardId-000000000000",
            "StartingPosition": { "Type": "AT_TIMESTAMP", "Timestamp": 1.5 },
        }),
    );
}

/// The error's text says that the shard is missing. But the stream lists the shard.
#[tokio::test]
async fn removed_consumer_is_registered_again() {
    let not_found = || error_answer("ResourceNotFoundException", "Shard 0 does not exist");
    let (source, script) = source_of(
        ARN,
        [
            consumer_description("ACTIVE"),
            not_found(),
            (200, json!({ "Shards": [shard(0, ("0", "9"))] })),
            not_found(),
            (200, json!({})),
            consumer_description("ACTIVE"),
            error_answer("ResourceInUseException", "subscribed a moment ago"),
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

/// Kinesis returns one error type for a missing stream, shard or consumer. The error's text is not
/// reliable.
#[tokio::test]
async fn list_of_shards_distinguishes_missing_shard_and_stream() {
    let not_found = |text| error_answer("ResourceNotFoundException", text);
    let listed = |number| (200, json!({ "Shards": [shard(number, ("0", "9"))] }));
    let misleading = "Shard shardId-000000000000 does not exist";
    for (then, expected) in [
        (listed(1), SourceErrorKind::NoSuchShard),
        (not_found(misleading), SourceErrorKind::NoSuchStream),
        // A listed shard exists. The failure may be temporary.
        (listed(0), SourceErrorKind::Unavailable),
        (error_answer("LimitExceededException", "slow down"), SourceErrorKind::Throttled),
    ] {
        let (source, script) = source_of("orders", [not_found(misleading), then]).await;
        let shard = "shardId-000000000000".parse().unwrap();

        let error = source.iterator(&shard, &ReadFrom::Latest).await.unwrap_err();

        assert_eq!(error.kind(), expected);
        assert_eq!(script.operations(), ["GetShardIterator", "ListShards"]);
    }
}

#[tokio::test]
async fn subscribe_without_consumer_is_unsupported() {
    let (source, script) = source_of("orders", []).await;
    let shard = "shardId-000000000000".parse().unwrap();

    let error = source.subscribe(&shard, &ReadFrom::Latest).await.map(drop).unwrap_err();

    assert_eq!(error.kind(), SourceErrorKind::Unsupported);
    assert!(script.operations().is_empty());
}

#[tokio::test]
async fn stream_id_has_account_and_creation_time() {
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
