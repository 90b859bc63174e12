//! Failed batches, refused checkpoints, and checkpoints between actions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{Batch, Checkpointer, Outcome, RecordProcessor, ShardContext};
use lease_multilang::child::{Child, ChildError, Ended, OnStop};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::sleep;

use crate::talk::{
    ASK, BEGIN, KEPT, LOST, Log, RECORDS, Scripted, THROTTLED, WORKED, failed, same, talk,
    talk_with,
};

#[tokio::test(start_paused = true)]
async fn refused_checkpoint_has_its_name_and_session_continues() {
    for (name, logged) in [
        (
            "ShutdownException",
            "not saved: the lease on the shard is lost: it was ended from outside",
        ),
        ("InvalidStateException", "not saved: InvalidStateException"),
        ("NullPointerException", "not saved: NullPointerException"),
    ] {
        let refused = KEPT.replace("null", &format!("\"{name}\""));
        let script = [&BEGIN[..], &[RECORDS, ASK, &*refused, WORKED], &LOST].concat();

        let talk = talk(&script, &[], same).await;

        assert_eq!(talk.ended.unwrap(), Ended::LeaseLost, "{name}");
        assert_eq!(talk.log[2], logged);
    }
}

#[tokio::test(start_paused = true)]
async fn throttled_checkpoint_is_retried_a_few_times() {
    let script = [&BEGIN[..], &[RECORDS, ASK, THROTTLED, ASK, THROTTLED, WORKED], &LOST].concat();

    let talk = talk(&script, &[], |child| child.with_max_checkpoint_attempts(2)).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    assert_eq!(talk.log[2], "not saved: ThrottlingException");
}

#[tokio::test(start_paused = true)]
async fn failed_batch_is_retried_before_its_status() {
    let script = [&BEGIN[..], &[RECORDS, ASK, KEPT, WORKED], &LOST].concat();

    let talk = talk(&script, &[failed, || Outcome::Retry(Duration::from_hours(1))], same).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    assert_eq!(talk.log[1..4], ["records 456 behind Some(0ns)"; 3]);
}

/// While the failed batch waits for its retry, another task requests a checkpoint.
struct CheckpointBeforeRetry {
    has_failed: bool,
}

#[async_trait]
impl RecordProcessor for CheckpointBeforeRetry {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if std::mem::replace(&mut self.has_failed, true) {
            return Outcome::Continue;
        }
        let checkpointer = checkpointer.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(1)).await;
            checkpointer.checkpoint().await
        });
        failed()
    }
}

#[tokio::test(start_paused = true)]
async fn checkpoint_of_another_task_does_not_skip_a_failed_batch() {
    let script = [&BEGIN[..], &[RECORDS, WORKED], &LOST].concat();
    let child = Child::new(|_: &ShardContext| CheckpointBeforeRetry { has_failed: false });

    let talk = talk_with(child, &script, Log::default()).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    assert_eq!(talk.rest, "");
}

#[tokio::test(start_paused = true)]
async fn batch_that_keeps_failing_ends_child_without_status() {
    let script = [&BEGIN[..], &[RECORDS]].concat();
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| Scripted {
        log: Arc::clone(&of_processor),
        answers: [failed as fn() -> Outcome; 2].into(),
        checkpoints_end: true,
    });
    let (mut to_child, input) = duplex(4096);
    let (output, mut from_child) = duplex(4096);
    for line in script.iter().filter_map(|line| line.strip_prefix("> ")) {
        to_child.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    let ended = child.with_max_attempts(2).run_over(input, output).await;

    assert!(matches!(ended, Err(ChildError::Batch { attempts: 2, .. })), "{ended:?}");
    let mut sent = String::new();
    from_child.read_to_string(&mut sent).await.unwrap();
    assert_eq!(sent, format!("\n{}\n", &BEGIN[1][2..]), "the batch got a status");
}

#[tokio::test(start_paused = true)]
async fn on_stop_skip_skips_batch_of_stopping_processor() {
    let script = [&BEGIN[..], &[RECORDS, WORKED], &LOST].concat();
    let stop: [fn() -> Outcome; 1] = [|| Outcome::StopShard("enough".into())];

    let talk = talk(&script, &stop, |child| child.on_stop(OnStop::Skip)).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
}

struct CheckpointLater {
    has_begun: bool,
}

#[async_trait]
impl RecordProcessor for CheckpointLater {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if !std::mem::replace(&mut self.has_begun, true) {
            let checkpointer = checkpointer.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(500)).await;
                checkpointer.checkpoint().await
            });
        }
        Outcome::Continue
    }
}

#[tokio::test(start_paused = true)]
async fn checkpoint_between_actions_is_requested_once_by_number() {
    let [second, third] = ["457", "458"].map(|number| RECORDS.replace("456", number));
    let script = [
        &BEGIN[..],
        &[RECORDS, WORKED, "~", &*second, ASK, KEPT, WORKED],
        // The later messages cause no further checkpoint request.
        &["~", &*third, WORKED, "~"],
        &LOST,
    ];
    let child = Child::new(|_: &ShardContext| CheckpointLater { has_begun: false });

    let talk = talk_with(child, &script.concat(), Log::default()).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    assert_eq!(talk.rest, "");
}
