//! The results and the errors of checkpoints.

use lease_core::{LossCause, StoreError};
use thiserror::Error;

use crate::position::{Position, RecordNumber};

/// The result of a checkpoint.
#[derive(Debug)]
#[non_exhaustive]
pub enum Checkpointed {
    /// The store has this checkpoint, or a later checkpoint.
    Stored,
    /// The store does not have the checkpoint yet, because of this error. The processor may continue. The
    /// worker writes the checkpoint within 5 s of the store's recovery, and before a hand-over. If the
    /// process crashes or loses the lease first, the records are delivered again.
    Pending(StoreError),
}

/// Reports why a checkpoint was rejected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The lease is lost, and another worker may read the shard.
    #[error("the lease on the shard is lost: {0}")]
    Lost(LossCause),
    /// The record was not delivered yet. Under a MultiLang daemon and in
    /// [`try_checkpoint_at`](crate::Checkpointer::try_checkpoint_at), the record may come before the
    /// checkpoint.
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
    /// The processor has ended.
    #[error("the processor has ended and cannot checkpoint")]
    Over,
    /// The store rejects the write until an operator corrects the cause.
    #[error("checkpoint not written")]
    Store(#[from] StoreError),
}
