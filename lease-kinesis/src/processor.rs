//! The contract with the user's code: what it is told, and what it may answer.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::{Checkpointed, Checkpointer};
use crate::position::Position;
use crate::record::Batch;
use crate::shard::ShardId;

/// Works on the records of one shard, while its lease is held.
///
/// One is made for each shard that a worker obtains. Its calls come one at a time, in this order:
/// `initialize`; `process_records`, any number of times; at most one of `lease_lost`, `shard_ended`
/// and `shutdown_requested`; then it is dropped. Only where `shard_ended` has failed may it be called
/// again, or one of the others come after it. Its [`Checkpointer`] ends with it.
///
/// At the loss of the lease, whatever call is running is dropped at its next await, before another
/// worker can obtain the shard; then `lease_lost` is called. What was begun and cannot be stopped
/// is to be refused where it arrives, by [the token](ShardContext::token).
#[async_trait]
pub trait RecordProcessor: Send {
    /// Prepares for the records that come after [`ShardContext::position`].
    ///
    /// Dropped at its next await where the shard is to be handed over meanwhile: then nothing else
    /// is called, since nothing has begun.
    ///
    /// # Errors
    ///
    /// Where it cannot: it is tried again later, with a new processor.
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        let _ = shard;
        Ok(())
    }

    /// Works on one batch, and says how to go on.
    ///
    /// May be given records again that follow the last checkpoint: after a failure, and after another
    /// worker had read them.
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome;

    /// The shard is another worker's, or soon will be. Nothing can be checkpointed.
    async fn lease_lost(&mut self) {}

    /// All records of a shard that was closed have been worked on. Must checkpoint the end: until
    /// then, nobody reads what the shard was split or merged into.
    ///
    /// The default does.
    ///
    /// # Errors
    ///
    /// Where it must be called again, after a while; or another processor, where the error is a
    /// [`NeedsRestart`]. If it answers `Ok` and the checkpoint is owed, the worker writes that
    /// without calling it again.
    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        checkpointer.checkpoint().await?;
        Ok(())
    }

    /// The worker stops, or hands this shard to another: the last chance to checkpoint.
    ///
    /// The default checkpoints all that was delivered, so that no record is delivered twice.
    ///
    /// # Errors
    ///
    /// Are told in the log; the shard is given up all the same.
    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        checkpointer.checkpoint().await?;
        Ok(())
    }
}

/// Makes a processor for each shard that a worker obtains.
///
/// A closure is one: `|shard: &ShardContext| MyProcessor::new(shard.shard.clone())`.
pub trait ProcessorFactory: Send + Sync + 'static {
    /// A processor for `shard`.
    fn processor(&self, shard: &ShardContext) -> Box<dyn RecordProcessor>;
}

/// What a processor may want to know of its shard.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShardContext {
    /// Which shard.
    pub shard: ShardId,
    /// How far it has been read, by whichever worker.
    pub position: Position,
    /// Orders all who ever read this shard: larger than that of every earlier reader. For
    /// [whoever is written to](lease_core::fence), to refuse those that came before.
    ///
    /// `None` under another's daemon, by the MultiLang protocol, which has none: there is then
    /// nothing to refuse a late write by.
    pub token: Option<FencingToken>,
    /// Cancelled shortly before the lease is lost, and when it or the processor ends in any way: for
    /// what the processor started elsewhere, so that none of it works beside its successor.
    pub cancellation: CancellationToken,
}

/// How a processor wants to go on after a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// With the next batch.
    Continue,
    /// With the same batch, after this time: with all of it that follows the last checkpoint that
    /// the processor asked for.
    Retry(Duration),
    /// With the same batch, after a time that grows with each failure in a row: with all of it that
    /// follows the last checkpoint that the processor asked for. If nothing follows, with the next
    /// batch. After [so many failures](crate::WorkerBuilder::with_max_failures) in a row without a
    /// checkpoint, the shard is given up as for `StopShard`. If the error is a [`NeedsRestart`],
    /// with another processor.
    Failed(ProcessorError),
    /// With the next batch, although this one was not worked on: it is told in the log, and
    /// counted. What should become of its records is the processor's business, before.
    Skip,
    /// Not on this worker for now: the shard is given up for a while that grows with each time in
    /// a row, and is then read from its checkpoint by whoever is to have it.
    StopShard(ProcessorError),
    /// Not at all: the worker hands over everything and ends.
    StopWorker(ProcessorError),
}

/// What went wrong in a processor: any error, so that `?` works.
pub type ProcessorError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a processor that is of no use any more: another one is made, after a time that
/// grows with each that does not get to a checkpoint, and begins at the last.
#[derive(Debug, Error)]
#[error("the processor is of no use any more")]
pub struct NeedsRestart(#[source] ProcessorError);

impl NeedsRestart {
    /// For this reason.
    pub fn new(cause: impl Into<ProcessorError>) -> Self {
        Self(cause.into())
    }

    /// The reason in `error`, where it is one of these; `error` again where it is not.
    pub(crate) fn cause(error: ProcessorError) -> Result<ProcessorError, ProcessorError> {
        error.downcast::<Self>().map(|needs| needs.0)
    }
}

impl<F, P> ProcessorFactory for F
where
    F: Fn(&ShardContext) -> P + Send + Sync + 'static,
    P: RecordProcessor + 'static,
{
    fn processor(&self, shard: &ShardContext) -> Box<dyn RecordProcessor> {
        Box::new(self(shard))
    }
}

/// An owed checkpoint is the worker's business: the processor goes on.
impl<E: Into<ProcessorError>> From<Result<Checkpointed, E>> for Outcome {
    fn from(result: Result<Checkpointed, E>) -> Self {
        result.map(drop).into()
    }
}

/// So that a processor can use `?` inside, and answer what came of it.
impl<E: Into<ProcessorError>> From<Result<(), E>> for Outcome {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Continue,
            Err(error) => Self::Failed(error.into()),
        }
    }
}
