//! How far a shard has been read, kept on its row: fenced, and never going back.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
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
    /// Held across the write: of two checkpoints, one comes after the other.
    kept: tokio::sync::Mutex<Kept>,
}

/// One processor's checkpointer, which ends with this: however the processor ends.
pub(crate) struct Term(Checkpointer);

/// What is kept, and what should be.
struct Kept {
    written: Position,
    /// The largest that was asked for, which may not have come about.
    asked: Position,
    keeper: Box<dyn Keeper>,
}

/// Where checkpoints are kept.
#[async_trait]
pub(crate) trait Keeper: Send {
    /// Brings what is `written` nearer to what is `asked`, and says there how far it came: it is called
    /// until it has come there.
    async fn keep(
        &mut self,
        written: &mut Position,
        asked: &Position,
    ) -> Result<(), CheckpointError>;
}

/// Keeps them on the shard's row.
struct OnRow {
    table: Arc<dyn LeaseTable>,
    grant: Grant,
    entry: Entry,
    /// What is written, as the row has it.
    words: Words,
}

/// What may be checkpointed now.
#[derive(Debug, Clone)]
pub(crate) enum Reach {
    /// Nothing: before the first record, and after the last call.
    Nothing,
    /// What has been delivered, up to and with this.
    Delivered(Position),
    /// The end of the shard; and by its number what has been delivered, up to and with this, if
    /// anything was.
    End(Option<Position>),
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
        let words = row.written.clone();
        Self::kept_by(Box::new(OnRow { table, grant, entry, words }), row.checkpoint.clone())
    }

    pub(crate) fn kept_by(keeper: Box<dyn Keeper>, written: Position) -> Arc<Self> {
        let kept = Kept { asked: written.clone(), written, keeper };
        Arc::new(Self { kept: tokio::sync::Mutex::new(kept) })
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
            Reach::End(_) => Position::ShardEnd,
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
    /// checkpointed, or was not delivered yet: also at the end of the shard, where all of them were.
    ///
    /// # Cancel safety
    ///
    /// As for [`checkpoint`](Self::checkpoint).
    pub async fn checkpoint_at(&self, record: &RecordNumber) -> Result<(), CheckpointError> {
        let mut kept = self.shared.ledger.kept.lock().await;
        let asked = Position::Record(record.clone());
        let delivered = match self.shared.reach().clone() {
            Reach::Delivered(upto) | Reach::End(Some(upto)) => upto,
            Reach::Nothing | Reach::End(None) => kept.written.clone(),
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

    /// What is kept, as far as this checkpointer knows.
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

    pub(crate) fn deliver(&self, upto: RecordNumber) {
        let mut reach = self.shared.reach();
        if !matches!(*reach, Reach::Over) {
            *reach = Reach::Delivered(Position::Record(upto));
        }
    }

    pub(crate) fn deliver_end(&self) {
        let mut reach = self.shared.reach();
        *reach = match std::mem::replace(&mut *reach, Reach::Over) {
            Reach::Nothing => Reach::End(None),
            Reach::Delivered(upto) => Reach::End(Some(upto)),
            ended @ (Reach::End(_) | Reach::Over) => ended,
        };
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
        while kept.written < kept.asked {
            // It may have ended while this waited for its turn, or for an answer.
            if matches!(*self.reach(), Reach::Over) {
                return Err(CheckpointError::Over);
            }
            kept.keeper.keep(&mut kept.written, &kept.asked).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Keeper for OnRow {
    async fn keep(
        &mut self,
        written: &mut Position,
        asked: &Position,
    ) -> Result<(), CheckpointError> {
        let change = row::checkpoint(&self.words, asked);
        match self.table.update(&self.grant, &change).await? {
            Written::Applied => {
                self.words = row::words(asked);
                written.clone_from(asked);
                self.entry.checkpointed(written);
                let (key, token) = (&self.grant.key, self.grant.token);
                debug!(%key, %token, checkpoint = %written, "checkpointed");
            }
            Written::Lost(cause) => return Err(CheckpointError::Lost(cause)),
            // An earlier attempt, whose answer was lost, was applied after all.
            Written::Unexpected => *written = self.read_again().await?,
        }
        Ok(())
    }
}

impl OnRow {
    async fn read_again(&mut self) -> Result<Position, CheckpointError> {
        let record = self.table.read(&self.grant.key).await?;
        // A row that is gone was deleted, and the grant with it.
        let record = record.ok_or(CheckpointError::Lost(LossCause::Revoked))?;
        let words = row::written(&record);
        if words == self.words {
            let text = format!("the checkpoint of row {} never is as expected", record.key);
            return Err(StoreError::new(StoreErrorKind::Corrupt, text).into());
        }
        let written = row::position(&record)?;
        self.words = words;
        Ok(written)
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("reach", &self.reach()).finish_non_exhaustive()
    }
}
