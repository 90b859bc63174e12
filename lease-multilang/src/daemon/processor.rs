//! A record processor that sends its records to a child process.

use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, Checkpointer, NeedsRestart, Outcome, Position, ProcessorError, RecordProcessor,
    ShardContext,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::conversation::{Conversation, Request};
use super::failure::ChildFailure;
use super::shared::Shared;
use crate::protocol::{Initialize, ProcessRecords, StartPosition, ToChild, WireRecord};

/// A separate task exchanges messages with the child, so a dropped call never leaves half a line in the pipe.
pub(super) struct ChildProcessor {
    shared: Shared,
    requests: Option<mpsc::Sender<Request>>,
    /// Cancelled when the worker no longer needs the child's work.
    abandoned: CancellationToken,
    _abandons: DropGuard,
}

impl ChildProcessor {
    pub(super) fn new(shared: Shared) -> Self {
        let abandoned = CancellationToken::new();
        let guard = abandoned.clone().drop_guard();
        Self { shared, requests: None, abandoned, _abandons: guard }
    }

    async fn request(
        &self,
        message: ToChild,
        checkpointer: Option<&Checkpointer>,
    ) -> Result<(), ChildFailure> {
        let Some(requests) = &self.requests else { return Err(ChildFailure::AlreadyEnded) };
        let (done, answer) = oneshot::channel();
        let request = Request { message, checkpointer: checkpointer.cloned(), done };
        requests.send(request).await.map_err(|_closed| ChildFailure::AlreadyEnded)?;
        answer.await.unwrap_or(Err(ChildFailure::AlreadyEnded))
    }

    /// After a failure, requests a new child from the worker.
    async fn request_or_restart(
        &self,
        message: ToChild,
        checkpointer: Option<&Checkpointer>,
    ) -> Result<(), NeedsRestart> {
        self.request(message, checkpointer).await.map_err(NeedsRestart::new)
    }
}

#[async_trait]
impl RecordProcessor for ChildProcessor {
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        let (conversation, stderr) =
            Conversation::start(&self.shared, &shard.shard, self.abandoned.clone())?;
        let (requests, requested) = mpsc::channel(1);
        self.requests = Some(requests);
        self.shared.tasks.spawn(conversation.run(requested, tokio::spawn(stderr)));
        let start = Some(start(shard));
        let message = ToChild::Initialize(Initialize { shard_id: shard.shard.to_string(), start });
        Ok(self.request(message, None).await?)
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let records = batch.records.iter().map(WireRecord::from).collect();
        let millis = |behind: Duration| u64::try_from(behind.as_millis()).unwrap_or(u64::MAX);
        let message = ProcessRecords { records, millis_behind_latest: batch.behind.map(millis) };
        let message = ToChild::ProcessRecords(message);
        self.request_or_restart(message, Some(checkpointer)).await.into()
    }

    async fn lease_lost(&mut self) {
        self.abandoned.cancel();
        // The conversation logs a failure.
        drop(self.request(ToChild::LeaseLost, None).await);
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.request_or_restart(ToChild::ShardEnded, Some(checkpointer)).await?;
        if checkpointer.checkpointed().await == Position::ShardEnd {
            return Ok(());
        }
        // A child gets `shardEnded` only once, so the next attempt needs a new child.
        Err(NeedsRestart::new("the child did not checkpoint the end of its shard").into())
    }

    /// The conversation sends `leaseLost` later, when it ends the child.
    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        Ok(self.request(ToChild::ShutdownRequested, Some(checkpointer)).await?)
    }
}

/// Announces what the row of the shard shows, as Amazon's daemon does.
fn start(shard: &ShardContext) -> StartPosition {
    let (sequence_number, sub_sequence) = match &shard.position {
        // The time of the first start, which Amazon's daemon does not have.
        Position::AtTimestamp(_) if shard.is_latest => ("LATEST".to_owned(), 0),
        Position::AtTimestamp(_) => ("AT_TIMESTAMP".to_owned(), 0),
        Position::Record(record) => (record.sequence.to_string(), record.sub_sequence),
        word @ (Position::TrimHorizon | Position::Latest | Position::ShardEnd) => {
            (word.to_string(), 0)
        }
    };
    StartPosition {
        sequence_number: Some(sequence_number),
        sub_sequence_number: Some(sub_sequence),
    }
}

#[cfg(test)]
mod tests {
    use lease_kinesis::RecordNumber;

    use super::*;

    #[test]
    fn unread_shard_is_announced_as_its_row_shows() {
        let announced = |position: &Position, is_latest| {
            let (shard, position) = ("shardId-0".parse().unwrap(), position.clone());
            let mut shard = ShardContext::new(shard, position, None, CancellationToken::new());
            shard.is_latest = is_latest;
            start(&shard).sequence_number.unwrap()
        };
        let at = Position::AtTimestamp(1_700_000_000_000);

        assert_eq!(announced(&at, true), "LATEST");
        assert_eq!(announced(&at, false), "AT_TIMESTAMP");
        assert_eq!(announced(&Position::TrimHorizon, false), "TRIM_HORIZON");
        // The first processor of the task has checkpointed.
        let record = RecordNumber::new("7".parse().unwrap());
        assert_eq!(announced(&record.into(), true), "7");
    }
}
