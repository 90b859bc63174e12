//! The end of a shard, which the processor must checkpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, CheckpointError, Checkpointer, Outcome, ProcessorError, RecordNumber, RecordProcessor,
    ShardContext,
};
use lease_multilang::child::{Child, ChildError, Ended};
use tokio::io::{AsyncWriteExt, duplex};

use crate::talk::{
    ASK_END, BEGIN, KEPT_END, LOST, Log, RECORDS, SHUT_DOWN, Scripted, WORKED, talk_with,
};

#[tokio::test(start_paused = true)]
async fn shard_end_without_checkpoint_is_an_error() {
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| Scripted {
        log: Arc::clone(&of_processor),
        answers: VecDeque::new(),
        checkpoints_end: false,
    });
    let (mut says, input) = duplex(4096);
    let (output, _hears) = duplex(4096);
    let lines = format!("{}\n{{\"action\":\"shardEnded\"}}\n", &BEGIN[0][2..]);
    says.write_all(lines.as_bytes()).await.unwrap();

    let ended = child.with_max_attempts(3).run_over(input, output).await;

    assert!(matches!(ended, Err(ChildError::EndNotCheckpointed(_))), "{ended:?}");
    assert_eq!(log.lock().unwrap()[1..], ["shard ended"; 3]);
}

struct Calm(Log);

#[async_trait]
impl RecordProcessor for Calm {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.0.lock().unwrap().push("shard ended".into());
        drop(checkpointer.checkpoint().await);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn failed_end_checkpoint_is_retried_without_the_processor() {
    let failed = KEPT_END.replace(r#""error":null"#, r#""error":"InvalidStateException""#);
    let end = [
        r#"> {"action":"shardEnded"}"#,
        ASK_END,
        &*failed,
        ASK_END,
        &*failed,
        ASK_END,
        KEPT_END,
        r#"< {"action":"status","responseFor":"shardEnded"}"#,
    ];
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| Calm(Arc::clone(&of_processor)));

    let talk = talk_with(child, &[&BEGIN[..], &end].concat(), log).await;

    assert_eq!(talk.ended.unwrap(), Ended::ShardEnd);
    assert_eq!(talk.log, ["shard ended"]);
    assert_eq!(talk.rest, "");
}

#[tokio::test(start_paused = true)]
async fn unwritten_end_checkpoint_ends_child_without_status() {
    let failed = KEPT_END.replace(r#""error":null"#, r#""error":"InvalidStateException""#);
    let asked = [ASK_END, &*failed];
    // The processor requests the checkpoint once, and the child repeats the request twice.
    let end = [&[r#"> {"action":"shardEnded"}"#][..], &asked, &asked, &asked, &["~"]].concat();
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| Calm(Arc::clone(&of_processor)));

    let talk = talk_with(child.with_max_attempts(2), &[&BEGIN[..], &end[..]].concat(), log).await;

    let ended = talk.ended;
    assert!(matches!(ended, Err(ChildError::EndNotCheckpointed(_))), "{ended:?}");
    assert_eq!(talk.log, ["shard ended"]);
    assert_eq!(talk.rest, "", "the child reports no status for the end");
}

struct TooLate {
    log: Log,
    checkpointer: Option<Checkpointer>,
}

#[async_trait]
impl RecordProcessor for TooLate {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.checkpointer = Some(checkpointer.clone());
        self.log.lock().unwrap().push(format!("{} records", batch.records.len()));
        Outcome::Continue
    }

    async fn lease_lost(&mut self) {
        let checkpointer = self.checkpointer.take().unwrap();
        for answer in [
            checkpointer.checkpoint().await,
            checkpointer.checkpoint_at(&"456".parse().map(RecordNumber::new).unwrap()).await,
        ] {
            assert!(matches!(answer, Err(CheckpointError::Over)), "{answer:?}");
            self.log.lock().unwrap().push("refused".into());
        }
    }
}

/// Requirement S5-12 of the table in `main.rs`.
#[tokio::test(start_paused = true)]
async fn checkpoint_after_lease_loss_is_refused() {
    let zombie = [r#"> {"action":"shutdown","reason":"ZOMBIE"}"#, SHUT_DOWN];
    for lost in [LOST, zombie] {
        let log = Log::default();
        let of_processor = Arc::clone(&log);
        let child = Child::new(move |_: &ShardContext| TooLate {
            log: Arc::clone(&of_processor),
            checkpointer: None,
        });

        let talk = talk_with(child, &[&BEGIN[..], &[RECORDS, WORKED], &lost].concat(), log).await;

        assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
        assert_eq!(talk.log, ["1 records", "refused", "refused"]);
        assert_eq!(talk.rest, "");
    }
}
