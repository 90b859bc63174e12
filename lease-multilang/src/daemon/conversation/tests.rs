use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt;
use lease_kinesis::extension::{CheckpointScope, CheckpointWriter};
use lease_kinesis::{CheckpointError, Position, RecordNumber};

use super::*;
use crate::daemon::Children;
use crate::protocol::{CheckpointRequest, Initialize, ProcessRecords, WireRecord};

struct Recorder(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl CheckpointWriter for Recorder {
    async fn write(
        &mut self,
        written: &mut Position,
        asked: &Position,
    ) -> Result<(), CheckpointError> {
        self.0.lock().unwrap().push(asked.to_string());
        written.clone_from(asked);
        Ok(())
    }
}

fn record(number: &str) -> RecordNumber {
    RecordNumber { sequence: number.parse().unwrap(), sub_sequence: 0 }
}

fn batch_of(number: &str) -> ToChild {
    let record = WireRecord {
        data: None,
        partition_key: "cat".into(),
        sequence_number: number.parse().unwrap(),
        approximate_arrival_timestamp: None,
        sub_sequence_number: None,
    };
    ToChild::ProcessRecords(ProcessRecords { records: vec![record], millis_behind_latest: None })
}

fn children(script: &str) -> Children {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/multilang/");
    Children::new(format!("sh {folder}{script}").parse().unwrap())
}

async fn send(children: &Children, message: ToChild) -> Result<(), ChildFailure> {
    send_with(children, message, None).await
}

async fn send_with(
    children: &Children,
    message: ToChild,
    checkpointer: Option<Checkpointer>,
) -> Result<(), ChildFailure> {
    let shard = "shardId-0".parse().unwrap();
    let begin = Initialize { shard_id: "shardId-0".into(), start: None };
    let (requests, requested) = mpsc::channel(2);
    let mut answers = Vec::new();
    for message in [ToChild::Initialize(begin), message] {
        let (done, answer) = oneshot::channel();
        answers.push(answer);
        let checkpointer = checkpointer.clone();
        assert!(requests.try_send(Request { message, checkpointer, done }).is_ok());
    }
    drop(requests);
    let started = Conversation::start(children.shared(), &shard, CancellationToken::new());
    let (conversation, stderr) = started.unwrap();
    conversation.run(requested, tokio::spawn(stderr)).await;
    let ended = answers.pop().unwrap().await.unwrap();
    answers.pop().unwrap().await.unwrap().unwrap();
    ended
}

#[tokio::test]
async fn next_child_gets_a_shutdown_after_an_unknown_end_message() {
    for end in [ToChild::ShardEnded, ToChild::LeaseLost] {
        let children = children("knows_shutdown.sh");

        let first = send(&children, end.clone()).await;
        assert!(matches!(first, Err(ChildFailure::Ended(_))), "{first:?}");
        let failed = children.child_failed().now_or_never();
        assert!(failed.is_none(), "the child may have failed at an unknown message");

        send(&children, end.clone()).await.unwrap();
        send(&children, end).await.unwrap();
    }
}

/// At a hand-over, the conversation itself sends `leaseLost`.
#[tokio::test]
async fn failure_at_the_final_lease_lost_changes_the_end_message() {
    let children = children("knows_shutdown.sh");

    send(&children, batch_of("7")).await.unwrap();
    send(&children, ToChild::ShardEnded).await.unwrap();
}

/// A child may not know `shutdown`.
#[tokio::test]
async fn shutdown_without_checkpoint_is_followed_by_shard_ended() {
    for times_lost in 0..3 {
        let children = children("knows_all_but_shutdown.sh");
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = Recorder(Arc::clone(&written));
        let scope = CheckpointScope::new(writer, Position::TrimHorizon);
        scope.deliver_end();
        assert_eq!(
            children.shared().end_messages.failed(EndMessage::Current),
            EndMessage::Shutdown
        );
        for _ in 0..times_lost {
            send(&children, ToChild::LeaseLost).await.unwrap();
        }

        let mut times_ended = 0;
        while written.lock().unwrap().is_empty() {
            send_with(&children, ToChild::ShardEnded, Some((*scope).clone())).await.unwrap();
            times_ended += 1;
            assert!(times_ended <= 3, "the shard never ends");
        }
    }
}

/// Amazon's daemon accepts the word only there, too.
#[tokio::test]
async fn shard_end_is_a_checkpoint_after_shard_ended() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let scope = CheckpointScope::new(Recorder(Arc::clone(&written)), Position::TrimHorizon);
    let mut checkpoints = ChildCheckpoints::new("shardId-0".parse().unwrap());
    let request = || CheckpointRequest {
        sequence_number: Some("SHARD_END".into()),
        ..CheckpointRequest::default()
    };

    checkpoints.sent(&batch_of("7"), Some((*scope).clone()));
    let before = checkpoints.write(request()).await;
    checkpoints.sent(&ToChild::ShardEnded, Some((*scope).clone()));
    scope.deliver_end();
    let after = checkpoints.write(request()).await;

    assert!(before.error.is_some(), "{before:?}");
    assert!(after.error.is_none(), "{after:?}");
    assert_eq!(*written.lock().unwrap(), ["SHARD_END"]);
}

/// The next batch is ready before the daemon reads the child's checkpoint request.
#[tokio::test]
async fn late_checkpoint_does_not_cover_the_next_batch() {
    let children = children("requests_late.sh");
    let shard = "shardId-0".parse().unwrap();
    let written = Arc::new(Mutex::new(Vec::new()));
    let writer = Recorder(Arc::clone(&written));
    let scope = CheckpointScope::new(writer, Position::TrimHorizon);
    let begin = Initialize { shard_id: "shardId-0".into(), start: None };
    let (requests, requested) = mpsc::channel(3);
    let mut answers = Vec::new();
    for (message, checkpointer) in [
        (ToChild::Initialize(begin), None),
        (batch_of("7"), Some((*scope).clone())),
        (batch_of("8"), Some((*scope).clone())),
    ] {
        let (done, answer) = oneshot::channel();
        answers.push(answer);
        let request = Request { message, checkpointer, done };
        assert!(requests.try_send(request).is_ok());
    }
    scope.deliver(record("8"));
    drop(requests);

    let started = Conversation::start(children.shared(), &shard, CancellationToken::new());
    let (conversation, stderr) = started.unwrap();
    conversation.run(requested, tokio::spawn(stderr)).await;

    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(*written.lock().unwrap(), ["7", "8"]);
}

#[tokio::test]
async fn unread_reply_fails_the_action() {
    let children = children("closes_stdin.sh");
    let written = Arc::new(Mutex::new(Vec::new()));
    let writer = Recorder(Arc::clone(&written));
    let scope = CheckpointScope::new(writer, Position::TrimHorizon);
    scope.deliver(record("7"));

    let failed = send_with(&children, batch_of("7"), Some((*scope).clone())).await;

    assert!(failed.is_err(), "the child did not report the action as done");
    let kept = written.lock().unwrap();
    assert!(!kept.is_empty() && kept.iter().all(|position| position == "7"), "{kept:?}");
    assert!(children.child_failed().now_or_never().is_some());
}

#[tokio::test]
async fn wrong_answer_to_initialize_ends_the_conversation() {
    let received =
        std::env::temp_dir().join(format!("lease-multilang-{}-received", std::process::id()));
    drop(std::fs::remove_file(&received));
    let children = children(&format!("answers_wrongly.sh {}", received.display()));
    let shard = "shardId-0".parse().unwrap();
    let begin = Initialize { shard_id: "shardId-0".into(), start: None };
    let (requests, requested) = mpsc::channel(1);
    let (done, answer) = oneshot::channel();
    let message = ToChild::Initialize(begin);
    assert!(requests.try_send(Request { message, checkpointer: None, done }).is_ok());
    drop(requests);

    let started = Conversation::start(children.shared(), &shard, CancellationToken::new());
    let (conversation, stderr) = started.unwrap();
    conversation.run(requested, tokio::spawn(stderr)).await;

    let answer = answer.await.unwrap();
    assert!(matches!(answer, Err(ChildFailure::WrongAnswer { .. })), "{answer:?}");
    assert!(children.child_failed().now_or_never().is_some());
    let lines = std::fs::read_to_string(&received).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.contains("initialize"), "{lines}");
    std::fs::remove_file(&received).unwrap();
}
