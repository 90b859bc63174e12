//! A record processor whose work is done by a child.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::children::Children;
use super::conversation::{Conversation, Request};
use super::failure::ChildFailure;
use crate::checkpoint::Checkpointer;
use crate::multilang::{Initialize, ProcessRecords, Start, ToChild, WireRecord};
use crate::position::Position;
use crate::processor::{NeedsRestart, Outcome, ProcessorError, RecordProcessor, ShardContext};
use crate::record::Batch;
use crate::shard::ShardId;

/// Tells its child what to do, and waits until it is done.
///
/// The talking is a task's, so that a call that is dropped leaves no half of a line behind: what
/// the child is at then is finished first, before it is told the next.
pub(super) struct ChildProcessor {
    children: Children,
    shard: ShardId,
    requests: Option<mpsc::Sender<Request>>,
    /// Cancelled once nobody waits for the child's work any more.
    abandoned: CancellationToken,
    _abandons: DropGuard,
}

impl ChildProcessor {
    pub(super) fn new(children: Children, shard: ShardId) -> Self {
        let abandoned = CancellationToken::new();
        let guard = abandoned.clone().drop_guard();
        Self { children, shard, requests: None, abandoned, _abandons: guard }
    }

    async fn tell(
        &self,
        message: ToChild,
        checkpointer: Option<&Checkpointer>,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        let Some(requests) = &self.requests else { return Err(ChildFailure::Before) };
        let (done, answer) = oneshot::channel();
        let request = Request { message, checkpointer: checkpointer.cloned(), limit, done };
        requests.send(request).await.map_err(|_gone| ChildFailure::Before)?;
        answer.await.unwrap_or(Err(ChildFailure::Before))
    }

    /// A child that has failed is replaced.
    async fn have(
        &self,
        message: ToChild,
        checkpointer: Option<&Checkpointer>,
    ) -> Result<(), NeedsRestart> {
        let limit = self.children.settings.answer_limit;
        self.tell(message, checkpointer, limit).await.map_err(NeedsRestart::new)
    }
}

#[async_trait]
impl RecordProcessor for ChildProcessor {
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        let (conversation, stderr) =
            Conversation::begin(&self.children, &self.shard, self.abandoned.clone())?;
        let (requests, requested) = mpsc::channel(1);
        self.requests = Some(requests);
        self.children.tasks.spawn(conversation.run(requested, tokio::spawn(stderr)));
        let start = Some(start(&shard.position));
        let told = ToChild::Initialize(Initialize { shard_id: self.shard.to_string(), start });
        let limit = self.children.settings.answer_limit;
        Ok(self.tell(told, None, limit).await?)
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let records = batch.records.iter().map(WireRecord::from).collect();
        let millis = |behind: Duration| u64::try_from(behind.as_millis()).unwrap_or(u64::MAX);
        let told = ProcessRecords { records, millis_behind_latest: batch.behind.map(millis) };
        self.have(ToChild::ProcessRecords(told), Some(checkpointer)).await.into()
    }

    async fn lease_lost(&mut self) {
        self.abandoned.cancel();
        let farewell = Some(self.children.settings.farewell);
        // A child that has failed was told of in the log.
        drop(self.tell(ToChild::LeaseLost, None, farewell).await);
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.have(ToChild::ShardEnded, Some(checkpointer)).await?;
        if checkpointer.checkpointed().await == Position::ShardEnd {
            return Ok(());
        }
        // It is told of the end once: the next child is told again.
        Err(NeedsRestart::new("the child did not checkpoint the end of its shard").into())
    }

    /// A child is told of the loss of the lease after this, when it is taken leave of.
    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        let limit = self.children.settings.answer_limit;
        Ok(self.tell(ToChild::ShutdownRequested, Some(checkpointer), limit).await?)
    }
}

/// How far its shard has been read, in the words of the Kinesis Client Library.
fn start(position: &Position) -> Start {
    let (sequence_number, sub_sequence_number) = match position {
        Position::AtTimestamp(_) => ("AT_TIMESTAMP".to_owned(), 0),
        Position::Record(record) => (record.sequence.to_string(), record.sub_sequence),
        Position::TrimHorizon | Position::Latest | Position::ShardEnd => (position.to_string(), 0),
    };
    Start { sequence_number: Some(sequence_number), sub_sequence_number: Some(sub_sequence_number) }
}
