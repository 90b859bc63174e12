//! The results and the errors of checkpoints.

use lease_core::{LossCause, StoreError};
use thiserror::Error;

use crate::position::{Position, RecordNumber};

/// The result of a checkpoint.
#[derive(Debug)]
#[non_exhaustive]
pub enum Checkpointed {
    /// The store has this checkpoint, or a later one.
    Stored,
    /// The checkpoint is not stored yet. The error is the reason. The worker retries the write, and the
    /// processor may continue. The worker writes the latest pending checkpoint within 5 s of the store's
    /// recovery, and before it hands the shard over to another worker. If the process crashes or loses the
    /// lease before that write, records are delivered again.
    Pending(StoreError),
}

/// Reports why a checkpoint was rejected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The lease is lost. Another worker reads the shard now or will soon read it.
    #[error("the lease on the shard is lost: {0}")]
    Lost(LossCause),
    /// The record was not delivered yet, or comes before the checkpoint. Only
    /// [`try_checkpoint_at`](crate::Checkpointer::try_checkpoint_at) and a MultiLang daemon reject
    /// a record before the checkpoint.
    #[error(
        "record {record} is out of range: checkpointed is {checkpointed}, delivered {delivered}"
    )]
    OutOfRange {
        /// The requested record.
        record: RecordNumber,
        /// The stored checkpoint.
        checkpointed: Position,
        /// The last delivered record.
        delivered: Position,
    },
    /// The processor has ended. Its shard was released, or another processor reads the shard.
    #[error("the processor has ended and cannot checkpoint")]
    Over,
    /// The store rejects the write until an operator corrects the cause. The worker retries.
    #[error("checkpoint not written")]
    Store(#[from] StoreError),
}
