use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt;

use super::*;
use crate::checkpoint::{CheckpointError, Keeper, Ledger};
use crate::multilang::{Initialize, ProcessRecords, WireRecord};
use crate::position::{Position, RecordNumber};

/// Remembers all that was kept.
struct Remembering(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Keeper for Remembering {
    async fn keep(
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
    Children::of(format!("sh {folder}{script}").parse().unwrap())
}

/// What comes of telling one of `children` that it is to begin, and then `message`.
async fn told_at_the_end(children: &Children, message: ToChild) -> Result<(), ChildFailure> {
    told(children, message, None).await
}

/// The same; its checkpoints are `checkpointer`'s.
async fn told(
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
        assert!(requests.try_send(Request { message, checkpointer, limit: None, done }).is_ok());
    }
    drop(requests);
    let begun = Conversation::begin(children, &shard, CancellationToken::new());
    let (conversation, stderr) = begun.unwrap();
    conversation.run(requested, tokio::spawn(stderr)).await;
    let ended = answers.pop().unwrap().await.unwrap();
    answers.pop().unwrap().await.unwrap().unwrap();
    ended
}

#[tokio::test]
async fn where_a_child_does_not_know_the_word_for_its_end_the_next_is_told_of_a_shutdown() {
    for end in [ToChild::ShardEnded, ToChild::LeaseLost] {
        let children = children("knows_shutdown.sh");

        let first = told_at_the_end(&children, end.clone()).await;
        assert!(matches!(first, Err(ChildFailure::Ended(_))), "{first:?}");
        let failed = children.one_has_failed().now_or_never();
        assert!(failed.is_none(), "it may have failed for that word alone");

        told_at_the_end(&children, end.clone()).await.unwrap();
        told_at_the_end(&children, end).await.unwrap();
    }
}

/// Its shard is given away: nobody asks what it answers.
#[tokio::test]
async fn what_a_child_is_told_at_last_teaches_the_same() {
    let children = children("knows_shutdown.sh");

    told_at_the_end(&children, batch_of("7")).await.unwrap();
    told_at_the_end(&children, ToChild::ShardEnded).await.unwrap();
}

/// One that had crashed at its end is taken for one that knows no other word than `shutdown`.
#[tokio::test]
async fn a_child_that_answers_a_shutdown_and_does_not_checkpoint_does_not_know_it() {
    for times_lost in 0..3 {
        let children = children("knows_all_but_shutdown.sh");
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeper = Remembering(Arc::clone(&kept));
        let term = Ledger::kept_by(Box::new(keeper), Position::TrimHorizon).term();
        term.deliver_end();
        assert_eq!(children.ends.failed(Words::OfEach), Words::Shutdown);
        for _ in 0..times_lost {
            told_at_the_end(&children, ToChild::LeaseLost).await.unwrap();
        }

        let mut times_ended = 0;
        while kept.lock().unwrap().is_empty() {
            told(&children, ToChild::ShardEnded, Some((*term).clone())).await.unwrap();
            times_ended += 1;
            assert!(times_ended <= 3, "its shard never ends");
        }
    }
}

/// Its next batch is ready before the child is heard.
#[tokio::test]
async fn what_a_child_asks_after_its_answer_is_of_the_batches_before() {
    let children = children("asks_late.sh");
    let shard = "shardId-0".parse().unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = Remembering(Arc::clone(&kept));
    let term = Ledger::kept_by(Box::new(keeper), Position::TrimHorizon).term();
    let begin = Initialize { shard_id: "shardId-0".into(), start: None };
    let (requests, requested) = mpsc::channel(3);
    let mut answers = Vec::new();
    for (message, checkpointer) in [
        (ToChild::Initialize(begin), None),
        (batch_of("7"), Some((*term).clone())),
        (batch_of("8"), Some((*term).clone())),
    ] {
        let (done, answer) = oneshot::channel();
        answers.push(answer);
        let request = Request { message, checkpointer, limit: None, done };
        assert!(requests.try_send(request).is_ok());
    }
    term.deliver(record("8"));
    drop(requests);

    let begun = Conversation::begin(&children, &shard, CancellationToken::new());
    let (conversation, stderr) = begun.unwrap();
    conversation.run(requested, tokio::spawn(stderr)).await;

    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(*kept.lock().unwrap(), ["7", "8"]);
}

/// S5-16.
#[tokio::test]
async fn reply_that_the_child_does_not_read_fails_the_action() {
    let children = children("closes_stdin.sh");
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = Remembering(Arc::clone(&kept));
    let term = Ledger::kept_by(Box::new(keeper), Position::TrimHorizon).term();
    term.deliver(record("7"));

    let failed = told(&children, batch_of("7"), Some((*term).clone())).await;

    assert!(failed.is_err(), "the child did not say that it was done");
    assert_eq!(*kept.lock().unwrap(), ["7"]);
    assert!(children.one_has_failed().now_or_never().is_some());
}

/// S5-20.
#[tokio::test]
async fn child_that_answers_wrongly_at_its_beginning_is_told_nothing_more() {
    let heard = std::env::temp_dir().join(format!("lease-kinesis-{}-heard", std::process::id()));
    drop(std::fs::remove_file(&heard));
    let children = children(&format!("answers_wrongly.sh {}", heard.display()));
    let shard = "shardId-0".parse().unwrap();
    let begin = Initialize { shard_id: "shardId-0".into(), start: None };
    let (requests, requested) = mpsc::channel(1);
    let (done, answer) = oneshot::channel();
    let message = ToChild::Initialize(begin);
    assert!(requests.try_send(Request { message, checkpointer: None, limit: None, done }).is_ok());
    drop(requests);

    let begun = Conversation::begin(&children, &shard, CancellationToken::new());
    let (conversation, stderr) = begun.unwrap();
    conversation.run(requested, tokio::spawn(stderr)).await;

    let answer = answer.await.unwrap();
    assert!(matches!(answer, Err(ChildFailure::WrongAnswer { .. })), "{answer:?}");
    assert!(children.one_has_failed().now_or_never().is_some());
    let lines = std::fs::read_to_string(&heard).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.contains("initialize"), "{lines}");
    std::fs::remove_file(&heard).unwrap();
}
