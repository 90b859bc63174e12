//! How far a shard has been read, kept on its row: fenced, and never going back.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lease_core::{Change, Grant, LeaseTable, LossCause, StoreError, Written};
use thiserror::Error;
use tracing::debug;

use crate::position::{Position, RecordNumber};
use crate::row;

/// Keeps how far a shard has been read.
///
/// Each checkpoint is one write, conditional on the lease and on the checkpoint before: one by a
/// former reader changes nothing, and one that is late undoes none that is newer. Clones are the
/// same checkpointer; it can be kept, and used from another task, until the lease ends.
#[derive(Clone)]
pub struct Checkpointer {
    shared: Arc<Shared>,
}

struct Shared {
    table: Arc<dyn LeaseTable>,
    grant: Grant,
    reach: Mutex<Reach>,
    /// What is on the row. Held across the write: of two checkpoints, one comes after the other.
    written: tokio::sync::Mutex<Position>,
}

/// What may be checkpointed now.
#[derive(Debug, Clone)]
enum Reach {
    /// Nothing: before the first record, and after the last call.
    Nothing,
    /// What has been delivered, up to and with this.
    Delivered(Position),
    /// Nothing any more: the lease has ended.
    Over,
}

/// Why a checkpoint was not kept.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The lease is lost: another worker reads the shard, or soon will.
    #[error("the lease on the shard is lost: {0}")]
    Lost(LossCause),
    /// The record was not delivered yet, or comes before what was checkpointed.
    #[error("record {record} is out of range: checkpointed is {checkpointed}, delivered {delivered}")]
    OutOfRange {
        /// What was asked for.
        record: RecordNumber,
        /// What is on the row.
        checkpointed: Position,
        /// The last that was delivered.
        delivered: Position,
    },
    /// Nothing can be checkpointed here: before the first batch, or once the shard was given up.
    #[error("nothing can be checkpointed now: no record was delivered, or the shard was given up")]
    NotNow,
    /// It is unknown whether the checkpoint was kept. It may be tried again.
    #[error("checkpoint not kept")]
    Store(#[from] StoreError),
}

impl Checkpointer {
    pub(crate) fn new(table: Arc<dyn LeaseTable>, grant: Grant, written: Position) -> Self {
        let reach = Mutex::new(Reach::Nothing);
        let written = tokio::sync::Mutex::new(written);
        Self { shared: Arc::new(Shared { table, grant, reach, written }) }
    }

    /// Checkpoints all that was delivered; in
    /// [`shard_ended`](crate::RecordProcessor::shard_ended), the end.
    ///
    /// Where that is checkpointed already, nothing is written.
    ///
    /// # Errors
    ///
    /// Where the lease is lost, nothing was delivered yet, or the store did not answer.
    ///
    /// # Cancel safety
    ///
    /// The checkpoint may or may not be kept; the next one sees to it.
    pub async fn checkpoint(&self) -> Result<(), CheckpointError> {
        let mut written = self.shared.written.lock().await;
        let delivered = self.shared.delivered()?;
        self.shared.write(&mut written, delivered).await
    }

    /// Checkpoints up to and with `record`.
    ///
    /// # Errors
    ///
    /// As for [`checkpoint`](Self::checkpoint); and where the record comes before what was
    /// checkpointed, or was not delivered yet.
    ///
    /// # Cancel safety
    ///
    /// As for [`checkpoint`](Self::checkpoint).
    pub async fn checkpoint_at(&self, record: &RecordNumber) -> Result<(), CheckpointError> {
        let mut written = self.shared.written.lock().await;
        let delivered = self.shared.delivered()?;
        let asked = Position::Record(record.clone());
        if asked < *written || asked > delivered {
            return Err(CheckpointError::OutOfRange {
                record: record.clone(),
                checkpointed: written.clone(),
                delivered,
            });
        }
        self.shared.write(&mut written, asked).await
    }

    /// What is on the row, as far as this checkpointer knows.
    pub async fn checkpointed(&self) -> Position {
        self.shared.written.lock().await.clone()
    }

    pub(crate) fn deliver(&self, upto: Position) {
        let mut reach = self.shared.reach();
        if !matches!(*reach, Reach::Over) {
            *reach = Reach::Delivered(upto);
        }
    }

    /// From here on, nothing can be checkpointed. Whoever kept a clone is told so.
    pub(crate) fn close(&self) {
        *self.shared.reach() = Reach::Over;
    }
}

impl Shared {
    fn reach(&self) -> std::sync::MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delivered(&self) -> Result<Position, CheckpointError> {
        match &*self.reach() {
            Reach::Delivered(upto) => Ok(upto.clone()),
            Reach::Nothing | Reach::Over => Err(CheckpointError::NotNow),
        }
    }

    async fn write(&self, written: &mut Position, next: Position) -> Result<(), CheckpointError> {
        while *written < next {
            match self.table.update(&self.grant, &row::checkpoint(written, &next)).await? {
                Written::Applied => {
                    let key = &self.grant.key;
                    debug!(%key, token = %self.grant.token, checkpoint = %next, "checkpointed");
                    *written = next.clone();
                }
                Written::Lost(cause) => return Err(CheckpointError::Lost(cause)),
                // An earlier attempt, whose answer was lost, was applied after all.
                Written::Unexpected => *written = self.read().await?,
            }
        }
        Ok(())
    }

    async fn read(&self) -> Result<Position, CheckpointError> {
        let record = self.table.read(&self.grant.key).await?;
        // A row that is gone was deleted, and the grant with it.
        let record = record.ok_or(CheckpointError::Lost(LossCause::Revoked))?;
        Ok(row::position(&record)?)
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer")
            .field("key", &self.shared.grant.key)
            .field("token", &self.shared.grant.token)
            .finish_non_exhaustive()
    }
}
