//! The AWS sinks over HTTP, against a Kinesis server and scripted answers of Firehose.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_kinesis::types::ShardIteratorType;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Router, serve};
use lease_export::{
    Event, EventBuffer, FirehoseSink, KinesisSink, Limits, Packed, Packer, PartitionKey, Pending,
    Position, Put, Record, Retries, ServiceErrorKind, Sink,
};
use lease_test_servers::kinesis;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::world::{World, event, token};

fn records(sink: &dyn Sink, events: impl IntoIterator<Item = Event>) -> Vec<Record> {
    let mut packer = Packer::new(sink.limits());
    for (number, event) in (1..).zip(events) {
        let packed = packer.push(Pending::new(Position::new(0, number), event));
        assert!(matches!(packed, Packed::Kept));
    }
    packer.finish().unwrap().records().to_vec()
}

fn bytes(number: u64, bytes: usize) -> Event {
    let id = format!("event-{number}").parse().unwrap();
    Event::new(id, &Value::String("x".repeat(bytes))).unwrap()
}

async fn lines(server: &kinesis::Server, stream: &str) -> Vec<String> {
    lines_of_shards(server, stream).await.concat()
}

async fn lines_of_shards(server: &kinesis::Server, stream: &str) -> Vec<Vec<String>> {
    let client = server.client();
    let shards = client.list_shards().stream_name(stream).send().await.unwrap();
    let mut lines_of_shards = Vec::new();
    for shard in shards.shards() {
        let mut lines = Vec::new();
        let iterator = client.get_shard_iterator().stream_name(stream).shard_id(shard.shard_id());
        let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon);
        let mut next = iterator.send().await.unwrap().shard_iterator;
        loop {
            let answer = client.get_records().set_shard_iterator(next).send().await.unwrap();
            next = answer.next_shard_iterator;
            for record in &answer.records {
                let text = std::str::from_utf8(record.data().as_ref()).unwrap();
                assert!(text.ends_with('\n'));
                lines.extend(text.lines().map(str::to_owned));
            }
            if answer.records.is_empty() {
                break;
            }
        }
        lines_of_shards.push(lines);
    }
    lines_of_shards
}

#[tokio::test]
async fn flush_arrives_in_kinesis_stream() {
    let servers =
        [Some(kinesis::Server::ferrokinesis().await), kinesis::Server::kinesis_local().await];
    for server in servers.into_iter().flatten() {
        flush_arrives_in_stream_of(&server).await;
        events_of_a_key_arrive_in_one_shard_of(&server).await;
        largest_batches_are_taken_by(&server).await;
    }
}

async fn flush_arrives_in_stream_of(server: &kinesis::Server) {
    server.create_stream("orders", 3).await;
    let world = World::in_memory();
    world.enabled().await;
    let sink = KinesisSink::new(server.client(), "orders");
    let small = sink.limits().with_events_per_record(10).unwrap();
    let exporter = world.exporter_to(Arc::new(sink.with_limits(small)));
    world.append(1_000).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 1_000);

    let mut arrived = lines(server, "orders").await;
    arrived.sort_unstable();
    let mut expected: Vec<_> = (1..=1_000).map(|number| event(number).line().to_owned()).collect();
    expected.sort_unstable();
    assert_eq!(arrived, expected);
    assert_eq!(world.buffer().pending().await.unwrap(), 0);
}

async fn events_of_a_key_arrive_in_one_shard_of(server: &kinesis::Server) {
    server.create_stream("by-key", 4).await;
    let world = World::in_memory();
    world.enabled().await;
    let sink = KinesisSink::new(server.client(), "by-key");
    // A record per event: only the key brings the events into one shard.
    let single = sink.limits().with_events_per_record(1).unwrap();
    let exporter = world.exporter_to(Arc::new(sink.with_limits(single)));
    let exporter = exporter.with_partition_key(|_event| PartitionKey::new("customer-12").ok());
    world.append(40).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 40);

    let mut counts: Vec<_> = lines_of_shards(server, "by-key").await.iter().map(Vec::len).collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 0, 40]);
}

async fn largest_batches_are_taken_by(server: &kinesis::Server) {
    server.create_stream("full", 5).await;
    let sink = KinesisSink::new(server.client(), "full");
    let limits = sink.limits();
    let single = limits.with_events_per_record(1).unwrap();
    let large = limits.record_bytes() - 100;

    for (limits, events) in [
        (single, (1..=501).map(event).collect::<Vec<_>>()),
        (limits, (1..=6).map(|number| bytes(number, large)).collect()),
    ] {
        let mut packer = Packer::new(limits);
        let full = (1..).zip(events).find_map(|(number, event)| {
            match packer.push(Pending::new(Position::new(0, number), event)) {
                Packed::Full(batch) => Some(batch),
                _ => None,
            }
        });
        let full = full.unwrap();
        let is_full = full.records().len() == 500 || full.bytes() * 20 > limits.batch_bytes() * 19;
        assert!(is_full, "{}", full.bytes());

        let answers = sink.put(token(1), full.records()).await.unwrap();

        assert_eq!(answers, vec![Put::Taken; full.records().len()], "{}", server.name);
    }
}

#[tokio::test]
async fn kinesis_takes_largest_record_and_no_larger() {
    let server = kinesis::Server::ferrokinesis().await;
    server.create_stream("orders", 1).await;
    let sink = KinesisSink::new(server.client(), "orders");
    // The quotes and the line break need 3 bytes. This server does not count the partition key, but
    // AWS does.
    let largest = sink.limits().record_bytes() - 3;

    let packed = records(&sink, [bytes(1, largest - "event-1".len())]);
    assert_eq!(sink.put(token(1), &packed).await.unwrap(), [Put::Taken]);

    let larger = Limits::KINESIS.with_record_bytes(2 * 1024 * 1024).unwrap();
    let sink = sink.with_limits(larger);
    let packed = records(&sink, [bytes(1, largest + 1)]);
    let refused = sink.put(token(1), &packed).await.unwrap_err();
    assert_eq!(refused.kind(), ServiceErrorKind::Content, "{refused:?}");
}

#[tokio::test]
async fn missing_stream_is_refused() {
    let server = kinesis::Server::ferrokinesis().await;
    let sink = KinesisSink::new(server.client(), "nowhere");

    let error = sink.put(token(1), &records(&sink, [event(1)])).await.unwrap_err();

    assert_eq!(error.kind(), ServiceErrorKind::Refused, "{error:?}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn missing_server_is_unavailable() {
    let closed_port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sink = KinesisSink::new(kinesis::client_of(closed_port), "orders");

    let error = sink.put(token(1), &records(&sink, [event(1)])).await.unwrap_err();

    assert!(error.is_retryable(), "{error:?}");
}

struct Service {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    task: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service {
    /// Returns `answers` in order, and then repeats the last answer.
    async fn answering(answers: Vec<(StatusCode, Value)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let answer = move |headers: HeaderMap, body: Bytes| {
            let target = headers["x-amz-target"].to_str().unwrap().to_owned();
            let mut seen = seen.lock().unwrap();
            seen.push((target, serde_json::from_slice(&body).unwrap()));
            let (status, answer) = answers[(seen.len() - 1).min(answers.len() - 1)].clone();
            let kind = [("content-type", "application/x-amz-json-1.1")];
            async move { (status, kind, answer.to_string()).into_response() }
        };
        let app = Router::new().route("/", post(answer));
        let task = tokio::spawn(async move { serve(listener, app).await.unwrap() });
        Self { address, asked, task }
    }

    fn firehose(&self) -> FirehoseSink {
        let config = aws_sdk_firehose::Config::builder()
            .behavior_version(aws_sdk_firehose::config::BehaviorVersion::latest())
            .region(aws_sdk_firehose::config::Region::from_static("us-east-1"))
            .credentials_provider(aws_sdk_firehose::config::Credentials::new(
                "test", "test", None, None, "test",
            ))
            .endpoint_url(format!("http://{}", self.address))
            .http_client(lease_test_servers::aws::http())
            .retry_config(aws_sdk_firehose::config::retry::RetryConfig::disabled());
        FirehoseSink::new(aws_sdk_firehose::Client::from_conf(config.build()), "orders")
    }

    fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }
}

fn taken(failed: &[bool]) -> (StatusCode, Value) {
    let responses: Vec<_> = failed
        .iter()
        .map(|failed| match failed {
            true => json!({ "ErrorCode": "ServiceUnavailableException", "ErrorMessage": "Slow." }),
            false => json!({ "RecordId": "1" }),
        })
        .collect();
    let count = failed.iter().filter(|failed| **failed).count();
    (StatusCode::OK, json!({ "FailedPutCount": count, "RequestResponses": responses }))
}

#[tokio::test]
async fn only_records_failed_by_firehose_are_retried() {
    let service = Service::answering(vec![taken(&[false, true, false]), taken(&[false])]).await;
    let world = World::in_memory();
    world.enabled().await;
    let sink = service.firehose();
    let single = sink.limits().with_events_per_record(1).unwrap();
    let once = Retries::new(1, Duration::from_millis(1), Duration::from_millis(1)).unwrap();
    let exporter = world.exporter_to(Arc::new(sink.with_limits(single))).with_retries(once);
    world.append(3).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 3);

    let asked = service.asked();
    assert_eq!(asked.len(), 2);
    let (target, first) = &asked[0];
    assert_eq!(target, "Firehose_20150804.PutRecordBatch");
    assert_eq!(first["DeliveryStreamName"], "orders");
    // The text is {"number":2} with a line break.
    assert_eq!(first["Records"][1]["Data"], "eyJudW1iZXIiOjJ9Cg==");
    assert_eq!(asked[1].1["Records"], json!([first["Records"][1]]));
}

#[tokio::test]
async fn short_answer_of_firehose_keeps_all_pending() {
    let service = Service::answering(vec![taken(&[false, false])]).await;
    let world = World::in_memory();
    world.enabled().await;
    let sink = service.firehose();
    let single = sink.limits().with_events_per_record(1).unwrap();
    let exporter = world.exporter_to(Arc::new(sink.with_limits(single)));
    world.append(3).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);

    assert_eq!(exporter.num_pending_events().await.unwrap(), 3);
}

#[tokio::test]
async fn firehose_errors_map_to_refused_or_unavailable() {
    let refused = json!({ "__type": "ResourceNotFoundException", "message": "No such stream." });
    let busy = json!({ "__type": "ServiceUnavailableException", "message": "Slow down." });
    let service = Service::answering(vec![
        (StatusCode::BAD_REQUEST, refused),
        (StatusCode::SERVICE_UNAVAILABLE, busy),
    ])
    .await;
    let sink = service.firehose();
    let records = records(&sink, [event(1)]);

    let first = sink.put(token(1), &records).await.unwrap_err();
    let second = sink.put(token(1), &records).await.unwrap_err();

    assert_eq!(first.kind(), ServiceErrorKind::Refused, "{first:?}");
    assert_eq!(second.kind(), ServiceErrorKind::Unavailable, "{second:?}");
}
