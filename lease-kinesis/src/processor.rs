//! The interface of the user's code: the record processor, its factory and its outcomes.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::{Checkpointed, Checkpointer};
use crate::position::Position;
use crate::record::Batch;
use crate::shard::ShardId;

/// Processes the records of one shard while the worker holds its lease.
///
/// The worker creates one processor for each shard that it obtains. The worker calls one method at a time.
/// The first call is `initialize`. Any number of calls of `process_records` follow. Then the worker calls at
/// most one of `lease_lost`, `shard_ended` and `shutdown_requested`. After a failed `shard_ended`, the worker
/// may call any of these three.
///
/// If the lease is lost, the worker drops the running call before another worker can obtain the shard. For
/// work that cannot be stopped, check the [fencing token](ShardContext::token) at the destination.
///
/// # Cancel safety
///
/// The worker may drop any call when the lease is lost, at the [time
/// limit](crate::WorkerBuilder::with_batch_limit), and at the end of the grace time. A dropped worker drops
/// all calls. A later processor repeats the work after the last checkpoint.
#[async_trait]
pub trait RecordProcessor: Send {
    /// Prepares for the records after [`ShardContext::position`].
    ///
    /// If the worker must hand over the shard during this call, the worker drops the call. No other method is
    /// called then.
    ///
    /// # Errors
    ///
    /// After an error, the worker retries later with a new processor.
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        let _ = shard;
        Ok(())
    }

    /// Processes one batch and returns how to continue.
    ///
    /// Records after the last checkpoint may be delivered again.
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome;

    /// Called after the lease is lost or the grace time has ended. All checkpoints fail.
    async fn lease_lost(&mut self) {}

    /// Called when all records of a closed shard have been processed. The implementation must checkpoint the
    /// end, because no worker reads the shard's children before that checkpoint.
    ///
    /// The default implementation checkpoints the end.
    ///
    /// # Errors
    ///
    /// The worker repeats a failed call after a backoff. After a [`NeedsRestart`], the worker calls a new
    /// processor instead. After an `Ok` with a pending checkpoint, the worker itself writes the checkpoint.
    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        checkpointer.checkpoint().await?;
        Ok(())
    }

    /// Called when the worker stops, or hands over this shard. Later checkpoints fail.
    ///
    /// The default implementation checkpoints all delivered records.
    ///
    /// # Errors
    ///
    /// The worker logs an error, and still hands over or releases the shard.
    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        checkpointer.checkpoint().await?;
        Ok(())
    }
}

/// Creates a processor for each shard that a worker obtains.
///
/// A closure is a factory: `|shard: &ShardContext| MyProcessor::new(shard.shard.clone())`.
pub trait ProcessorFactory: Send + Sync + 'static {
    /// Creates a processor for `shard`.
    fn processor(&self, shard: &ShardContext) -> Box<dyn RecordProcessor>;
}

/// Describes a shard to its processor.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShardContext {
    /// The shard.
    pub shard: ShardId,
    /// The last checkpoint of the shard, by any worker. Without a checkpoint, the start position.
    pub position: Position,
    /// Whether the shard had no checkpoint at the grant, and its row shows `LATEST`. Then `position` is the time of the
    /// first start. Only tables of the Kinesis Client Library have such rows.
    pub is_latest: bool,
    /// The fencing token of the lease, larger than the token of every earlier reader of this shard. [The
    /// destination of writes](lease_core::fence) can refuse writes under smaller tokens. `None` in a child of
    /// a MultiLang daemon.
    pub token: Option<FencingToken>,
    /// Cancelled shortly before the lease is lost, and at any other end of the lease or the processor. Stop
    /// the processor's own tasks and threads then.
    pub cancellation: CancellationToken,
}

impl ShardContext {
    /// Creates a context for a program that calls a processor without a [`Worker`](crate::Worker).
    pub fn new(
        shard: ShardId,
        position: Position,
        token: Option<FencingToken>,
        cancellation: CancellationToken,
    ) -> Self {
        let is_latest = position == Position::Latest;
        Self { shard, position, is_latest, token, cancellation }
    }
}

/// Decides how the worker continues after a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Continues with the next batch.
    Continue,
    /// Delivers the batch again after this time, without the records up to the last requested checkpoint.
    Retry(Duration),
    /// Delivers the batch again, as for `Retry`. The pause grows with each consecutive failure. If no record
    /// is left, the worker continues with the next batch. After [the maximum
    /// number](crate::WorkerBuilder::with_max_failures) of consecutive failures without a checkpoint, the
    /// worker acts as for `StopShard`. After a [`NeedsRestart`], another processor receives the records.
    Failed(ProcessorError),
    /// Continues with the next batch, although this batch was not processed.
    Skip,
    /// Releases the shard, for a time that grows with each consecutive stop. The next reader starts at the
    /// checkpoint.
    StopShard(ProcessorError),
    /// Hands over all shards and ends the worker.
    StopWorker(ProcessorError),
}

/// The error of a processor: any error, so that `?` works.
pub type ProcessorError = Box<dyn std::error::Error + Send + Sync>;

/// An error that makes the worker replace the processor after a backoff. The new processor starts at the last
/// checkpoint.
#[derive(Debug, Error)]
#[error("the processor must be replaced")]
pub struct NeedsRestart(#[source] ProcessorError);

impl NeedsRestart {
    /// Wraps the reason for the restart.
    pub fn new(cause: impl Into<ProcessorError>) -> Self {
        Self(cause.into())
    }

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

/// The worker writes a pending checkpoint later.
impl<E: Into<ProcessorError>> From<Result<Checkpointed, E>> for Outcome {
    fn from(result: Result<Checkpointed, E>) -> Self {
        result.map(drop).into()
    }
}

impl<E: Into<ProcessorError>> From<Result<(), E>> for Outcome {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Continue,
            Err(error) => Self::Failed(error.into()),
        }
    }
}
