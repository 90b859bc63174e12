//! How far a shard has been read, kept on its row: fenced, and never going back.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{Grant, LeaseTable, LossCause, StoreError, StoreErrorKind, Written};
use thiserror::Error;
use tracing::debug;

use crate::board::Entry;
use crate::position::{Position, RecordNumber};
use crate::row::{self, ShardRow, Words};

/// Keeps how far a shard has been read.
///
/// Each checkpoint is one write, conditional on the lease and on the checkpoint before: one by a
/// former reader changes nothing, and one that is late undoes none that is newer. Clones are the
/// same checkpointer; it can be kept, and used from another task, as long as the processor that it
/// was given to is there. Afterwards it answers [`CheckpointError::Over`].
#[derive(Clone)]
pub struct Checkpointer {
    shared: Arc<Shared>,
}

struct Shared {
    ledger: Arc<Ledger>,
    reach: Mutex<Reach>,
}

/// How far a shard has been read under one lease, whichever of its processors it was.
pub(crate) struct Ledger {
    table: Arc<dyn LeaseTable>,
    grant: Grant,
    entry: Entry,
    /// Held across the write: of two checkpoints, one comes after the other.
    kept: tokio::sync::Mutex<Kept>,
}

/// One processor's checkpointer, which ends with this: however the processor ends.
pub(crate) struct Term(Checkpointer);

/// What is on the row, and what should be.
#[derive(Debug)]
struct Kept {
    written: Position,
    /// The same, as the row has it.
    words: Words,
    /// The largest that was asked for, which may not have come about.
    asked: Position,
}

/// What may be checkpointed now.
#[derive(Debug, Clone)]
pub(crate) enum Reach {
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
    #[error(
        "record {record} is out of range: checkpointed is {checkpointed}, delivered {delivered}"
    )]
    OutOfRange {
        /// What was asked for.
        record: RecordNumber,
        /// What is on the row.
        checkpointed: Position,
        /// The last that was delivered.
        delivered: Position,
    },
    /// The processor's time is over: the shard was given up, or another processor works on it.
    #[error("the processor has ended: nothing can be checkpointed for it any more")]
    Over,
    /// It is unknown whether the checkpoint was kept. It may be tried again.
    #[error("checkpoint not kept")]
    Store(#[from] StoreError),
}

impl Ledger {
    pub(crate) fn new(
        table: Arc<dyn LeaseTable>,
        grant: Grant,
        row: &ShardRow,
        entry: Entry,
    ) -> Arc<Self> {
        let (written, words) = (row.checkpoint.clone(), row.written.clone());
        let kept = Kept { asked: written.clone(), written, words };
        Arc::new(Self { table, grant, entry, kept: tokio::sync::Mutex::new(kept) })
    }

    /// What is on the row, as far as is known; from there the next processor begins. What the one
    /// before asked for in vain is forgotten: its records are delivered again.
    pub(crate) async fn begin(&self) -> Position {
        let mut kept = self.kept.lock().await;
        kept.asked = kept.written.clone();
        kept.written.clone()
    }

    /// The checkpointer of a processor that begins.
    pub(crate) fn term(self: &Arc<Self>) -> Term {
        let (ledger, reach) = (Arc::clone(self), Mutex::new(Reach::Nothing));
        Term(Checkpointer { shared: Arc::new(Shared { ledger, reach }) })
    }
}

impl Deref for Term {
    type Target = Checkpointer;

    fn deref(&self) -> &Checkpointer {
        &self.0
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Checkpointer {
    /// Checkpoints all that was delivered; in
    /// [`shard_ended`](crate::RecordProcessor::shard_ended), the end.
    ///
    /// Where that is checkpointed already, or nothing was delivered yet, nothing is written.
    ///
    /// # Errors
    ///
    /// Where the lease is lost, the processor has ended, or the store did not answer. In that last
    /// case it is made up for before the shard is given to another worker.
    ///
    /// # Cancel safety
    ///
    /// The checkpoint may or may not be kept; the next one sees to it.
    pub async fn checkpoint(&self) -> Result<(), CheckpointError> {
        let mut kept = self.shared.ledger.kept.lock().await;
        kept.asked = match &*self.shared.reach() {
            Reach::Delivered(upto) => upto.clone().max(kept.asked.clone()),
            // Nothing to do is done.
            Reach::Nothing => return Ok(()),
            Reach::Over => return Err(CheckpointError::Over),
        };
        self.shared.keep(&mut kept).await
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
        let mut kept = self.shared.ledger.kept.lock().await;
        let asked = Position::Record(record.clone());
        let delivered = match self.shared.reach().clone() {
            Reach::Delivered(upto) => upto,
            Reach::Nothing => kept.written.clone(),
            Reach::Over => return Err(CheckpointError::Over),
        };
        if asked < kept.written || asked > delivered {
            return Err(CheckpointError::OutOfRange {
                record: record.clone(),
                checkpointed: kept.written.clone(),
                delivered,
            });
        }
        kept.asked = asked.max(kept.asked.clone());
        self.shared.keep(&mut kept).await
    }

    /// What is on the row, as far as this checkpointer knows.
    pub async fn checkpointed(&self) -> Position {
        self.shared.ledger.kept.lock().await.written.clone()
    }

    /// Makes the checkpoint that was asked for and has not come about, if there is one.
    pub(crate) async fn flush(&self) -> Result<(), CheckpointError> {
        let mut kept = self.shared.ledger.kept.lock().await;
        self.shared.keep(&mut kept).await
    }

    pub(crate) fn reach(&self) -> Reach {
        self.shared.reach().clone()
    }

    pub(crate) fn deliver(&self, upto: Position) {
        let mut reach = self.shared.reach();
        if !matches!(*reach, Reach::Over) {
            *reach = Reach::Delivered(upto);
        }
    }

    /// Takes back that more was delivered than `before`, as far as it was not checkpointed.
    pub(crate) async fn take_back(&self, before: Reach) {
        let kept = self.shared.ledger.kept.lock().await;
        *self.shared.reach() = match before {
            Reach::Delivered(upto) => Reach::Delivered(upto.max(kept.asked.clone())),
            before => before,
        };
    }

    /// From here on, nothing can be checkpointed. Whoever kept a clone is told so.
    pub(crate) fn close(&self) {
        *self.shared.reach() = Reach::Over;
    }
}

impl Shared {
    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep(&self, kept: &mut Kept) -> Result<(), CheckpointError> {
        let Ledger { table, grant, entry, .. } = &*self.ledger;
        while kept.written < kept.asked {
            // It may have ended while this waited for its turn, or for an answer.
            if matches!(*self.reach(), Reach::Over) {
                return Err(CheckpointError::Over);
            }
            let change = row::checkpoint(&kept.words, &kept.asked);
            match table.update(grant, &change).await? {
                Written::Applied => {
                    kept.words = row::words(&kept.asked);
                    kept.written = kept.asked.clone();
                    entry.checkpointed(&kept.written);
                    let (key, token) = (&grant.key, grant.token);
                    debug!(%key, %token, checkpoint = %kept.written, "checkpointed");
                }
                Written::Lost(cause) => return Err(CheckpointError::Lost(cause)),
                // An earlier attempt, whose answer was lost, was applied after all.
                Written::Unexpected => self.ledger.read_again(kept).await?,
            }
        }
        Ok(())
    }
}

impl Ledger {
    async fn read_again(&self, kept: &mut Kept) -> Result<(), CheckpointError> {
        let record = self.table.read(&self.grant.key).await?;
        // A row that is gone was deleted, and the grant with it.
        let record = record.ok_or(CheckpointError::Lost(LossCause::Revoked))?;
        let words = row::written(&record);
        if words == kept.words {
            let text = format!("the checkpoint of row {} never is as expected", record.key);
            return Err(StoreError::new(StoreErrorKind::Corrupt, text).into());
        }
        (kept.written, kept.words) = (row::position(&record)?, words);
        Ok(())
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer")
            .field("key", &self.shared.ledger.grant.key)
            .field("token", &self.shared.ledger.grant.token)
            .finish_non_exhaustive()
    }
}
