//! Runs a child of this library under a daemon that follows a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, CheckpointError, Checkpointed, Checkpointer, Outcome, ProcessorError, RecordProcessor,
    ShardContext,
};
use lease_multilang::child::{Child, ChildError, Ended};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::sleep;

pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// Checkpoints after each batch, unless `answers` has an outcome for the batch.
pub(crate) struct Scripted {
    pub(crate) log: Log,
    pub(crate) answers: VecDeque<fn() -> Outcome>,
    pub(crate) checkpoints_end: bool,
}

#[async_trait]
impl RecordProcessor for Scripted {
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        assert_eq!(shard.token, None, "the protocol has no token");
        self.note(format!("initialize {} at {}", shard.shard, shard.position));
        Ok(())
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let records = batch.records.iter().map(|record| record.number.to_string());
        let records: Vec<_> = records.collect();
        self.note(format!("records {} behind {:?}", records.join(" "), batch.behind));
        if let Some(answer) = self.answers.pop_front() {
            return answer();
        }
        let kept = checkpointer.checkpoint().await;
        self.note_checkpoint(kept);
        Outcome::Continue
    }

    async fn lease_lost(&mut self) {
        self.note("lease lost".into());
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.note("shard ended".into());
        if self.checkpoints_end {
            checkpointer.checkpoint().await?;
        }
        Ok(())
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        self.note("shutdown requested".into());
        let kept = checkpointer.checkpoint().await;
        self.note_checkpoint(kept);
        Ok(())
    }
}

impl Scripted {
    fn note(&self, what: String) {
        self.log.lock().unwrap().push(what);
    }

    fn note_checkpoint(&self, kept: Result<Checkpointed, CheckpointError>) {
        match kept {
            Ok(Checkpointed::Pending(error)) | Err(CheckpointError::Store(error)) => {
                self.note(format!("not saved: {}", std::error::Error::source(&error).unwrap()));
            }
            Ok(_) => (),
            Err(error) => self.note(format!("not saved: {error}")),
        }
    }
}

pub(crate) struct Talk {
    pub(crate) ended: Result<Ended, ChildError>,
    pub(crate) log: Vec<String>,
    pub(crate) rest: String,
}

/// The daemon sends the lines of `script` that start with `> `. The daemon expects the lines that start with
/// `< `, byte for byte. At `~` the daemon waits for a second. At the end, the daemon closes the child's input.
pub(crate) async fn talk(
    script: &[&str],
    answers: &[fn() -> Outcome],
    set: impl FnOnce(Child) -> Child,
) -> Talk {
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let answers: Vec<_> = answers.to_vec();
    let child = set(Child::new(move |_: &ShardContext| Scripted {
        log: Arc::clone(&of_processor),
        answers: answers.clone().into(),
        checkpoints_end: true,
    }));
    talk_with(child, script, log).await
}

pub(crate) async fn talk_with(child: Child, script: &[&str], log: Log) -> Talk {
    let (mut to_child, input) = duplex(1024 * 1024);
    let (output, mut from_child) = duplex(1024 * 1024);
    let daemon = async {
        for line in script {
            if *line == "~" {
                sleep(Duration::from_secs(1)).await;
                continue;
            }
            let (direction, text) = line.split_at(2);
            if direction == "> " {
                to_child.write_all(format!("{text}\n").as_bytes()).await.unwrap();
                continue;
            }
            let mut received = vec![0; text.len() + 2];
            from_child.read_exact(&mut received).await.unwrap();
            assert_eq!(String::from_utf8(received).unwrap(), format!("\n{text}\n"));
        }
        drop(to_child);
        let mut rest = String::new();
        from_child.read_to_string(&mut rest).await.unwrap();
        rest
    };
    let (ended, rest) = tokio::join!(child.run_over(input, output), daemon);
    let log = log.lock().unwrap().clone();
    Talk { ended, log, rest }
}

pub(crate) const BEGIN: [&str; 2] = [
    r#"> {"action":"initialize","shardId":"shardId-0","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}"#,
    r#"< {"action":"status","responseFor":"initialize"}"#,
];
pub(crate) const BEGIN_G0: &str = r#"> {"action":"initialize","shardId":"shardId-0"}"#;
pub(crate) const RECORDS: &str = r#"> {"action":"processRecords","records":[{"data":"bWVvdw==","partitionKey":"cat","sequenceNumber":"456","approximateArrivalTimestamp":1476889707000,"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":0}"#;
pub(crate) const RECORDS_G0: &str = r#"> {"action":"processRecords","records":[{"data":"bWVvdw==","partitionKey":"cat","sequenceNumber":"456"}]}"#;
pub(crate) const ASK: &str =
    r#"< {"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0}"#;
pub(crate) const KEPT: &str =
    r#"> {"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0,"error":null}"#;
pub(crate) const THROTTLED: &str = r#"> {"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0,"error":"ThrottlingException"}"#;
pub(crate) const WORKED: &str = r#"< {"action":"status","responseFor":"processRecords"}"#;
pub(crate) const ASK_END: &str =
    r#"< {"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}"#;
pub(crate) const KEPT_END: &str =
    r#"> {"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null,"error":null}"#;
pub(crate) const SHUT_DOWN: &str = r#"< {"action":"status","responseFor":"shutdown"}"#;
pub(crate) const LOST: [&str; 2] =
    [r#"> {"action":"leaseLost"}"#, r#"< {"action":"status","responseFor":"leaseLost"}"#];

pub(crate) fn same(child: Child) -> Child {
    child
}

pub(crate) fn failed() -> Outcome {
    Outcome::Failed("no disk".into())
}
