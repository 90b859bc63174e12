//! Tests of invalid worker settings, and of a store that is unavailable at the start.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_kinesis::{
    Batch, Checkpointer, InitialPosition, Outcome, RecordProcessor, ShardContext, SimStream,
    Source, StreamId, Worker, WorkerBuilder,
};
use lease_memory::MemoryStore;

struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _: &Batch, _: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

fn worker(application: &str) -> WorkerBuilder {
    let factory = |_: &ShardContext| Idle;
    Worker::builder(application, MemoryStore::new(), SimStream::new(1), factory)
}

fn error_text(builder: WorkerBuilder) -> String {
    builder.build().unwrap_err().to_string()
}

#[tokio::test]
async fn invalid_setting_is_rejected_with_a_sentence() {
    let name = "a".parse().unwrap();
    let good = || worker("shop");
    for (builder, sentence) in [
        (worker(""), "application name \"\" is not valid: 1 to 256 letters, digits"),
        (worker("sh/op"), "application name \"sh/op\" is not valid"),
        (good().with_weight(0), "the weight must be 1 to 1000"),
        (good().with_max_shards(0), "the maximum number of shards must be at least 1"),
        (good().with_max_records(0), "the maximum number of records must be 1 to 10000"),
        (good().with_max_records(10_001), "the maximum number of records must be 1 to 10000"),
        (
            good().with_settling(Duration::from_millis(9)),
            "the settling time must be at least 10 ms",
        ),
        (
            good().with_idle_pause(Duration::from_millis(199)),
            "the idle pause must be at least 200 ms",
        ),
        (good().with_batch_limit(Duration::ZERO), "the batch limit must be more than zero"),
        (good().with_max_hand_overs(0), "the maximum number of hand-overs must be at least 1"),
        (good().with_sync_interval(Duration::ZERO), "the sync interval must be more than zero"),
        (
            good().with_backoff(Duration::from_secs(2), Duration::from_secs(1)),
            "the first backoff must not be longer than the last",
        ),
        (
            good().with_initial_position(InitialPosition::AtTimestamp(u64::MAX)),
            "a timestamp must be in milliseconds since 1970",
        ),
        (
            good()
                .with_wall_clock(|| 1_700_000_000_000)
                .with_initial_position(InitialPosition::AtTimestamp(1_700_000_000_001)),
            "not in the future: 1700000000001 is after the current time, 1700000000000",
        ),
        (
            good().with_name("a".parse().unwrap()).replacing(name),
            "a worker must not replace itself",
        ),
    ] {
        let error_text = error_text(builder);
        assert!(error_text.starts_with("worker not set up: "), "{error_text}");
        assert!(error_text.contains(sentence), "{error_text}");
    }
}

#[tokio::test]
async fn missing_stream_and_invalid_stream_id_are_rejected() {
    let none: Vec<(StreamId, std::sync::Arc<dyn Source>)> = Vec::new();
    let factory = |_: &ShardContext| Idle;
    let builder = Worker::builder_of_streams("shop", MemoryStore::new(), none, factory);

    assert!(error_text(builder).contains("a worker must read at least one stream"));
    let error_text = "orders".parse::<StreamId>().unwrap_err().to_string();
    assert_eq!(error_text, "stream id \"orders\" is not valid: it must be account:name:created");
}

/// Only an error that an operator must correct ends a worker.
#[tokio::test(start_paused = true)]
async fn worker_waits_for_store_unavailable_at_start() {
    let store = Faulty::new(MemoryStore::new());
    for call in [Call::Obtain, Call::Read, Call::Write] {
        store.every(call, Fault::Fail);
    }
    let factory = |_: &ShardContext| Idle;
    let stream = SimStream::new(3);
    let worker = Worker::builder("shop", store.clone(), stream, factory);
    let worker = worker.with_initial_position(InitialPosition::TrimHorizon).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!running.is_finished());

    store.heal();

    let reads = async {
        while handle.status().shards.len() < 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), reads).await.unwrap();
    handle.stop();
    running.await.unwrap().unwrap();
}
