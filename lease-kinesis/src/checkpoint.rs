//! How far a shard has been read, kept on its row: fenced, and never going back.

mod ledger;
mod on_row;

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{LossCause, StoreError};
use thiserror::Error;

use self::ledger::Kept;
pub(crate) use self::ledger::{Keeper, Ledger};
use crate::position::{Position, RecordNumber};

/// Writes how far a shard has been read.
///
/// Each checkpoint is one write, conditional on the lease and on the checkpoint before: a former
/// reader's write changes nothing, and a late write undoes no newer one. Clones are the same
/// checkpointer. It may be kept, and used from another task, until the processor that it was given to
/// ends. From then on it returns [`CheckpointError::Over`].
///
/// A checkpoint says that all records up to it are processed. So a batch that fails after a
/// checkpoint inside it is delivered again from the record after that checkpoint.
#[derive(Clone)]
pub struct Checkpointer {
    shared: Arc<Shared>,
}

struct Shared {
    ledger: Arc<Ledger>,
    reach: Mutex<Reach>,
}

/// One processor's checkpointer, which ends when this is dropped.
pub(crate) struct Term(Checkpointer);

/// What may be checkpointed now.
#[derive(Debug, Clone)]
pub(crate) enum Reach {
    /// Nothing: no record was delivered yet.
    Nothing,
    /// All records up to and with this one were delivered.
    Delivered(Position),
    /// The end of the shard; and by number, all records up to and with this one, if any was
    /// delivered.
    End(Option<Position>),
    /// Nothing any more: the processor has ended.
    Over,
}

/// What became of a checkpoint.
#[derive(Debug)]
#[non_exhaustive]
pub enum Checkpointed {
    /// The store has it, or a later one.
    Kept,
    /// The store did not answer, for this reason. The processor may go on: the worker writes the
    /// latest checkpoint that it owes as soon as the store answers, within 5 s, and before it gives
    /// the shard to another worker. Only if the process dies or the lease is lost before that, records
    /// are delivered again.
    Owed(StoreError),
}

/// Why a checkpoint was not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The lease is lost: another worker reads the shard, or soon will.
    #[error("the lease on the shard is lost: {0}")]
    Lost(LossCause),
    /// The record was not delivered yet. Under a daemon, also: it comes before the checkpoint.
    #[error(
        "record {record} is out of range: checkpointed is {checkpointed}, delivered {delivered}"
    )]
    OutOfRange {
        /// What was asked for.
        record: RecordNumber,
        /// What the store has.
        checkpointed: Position,
        /// The last record that was delivered.
        delivered: Position,
    },
    /// The processor has ended: the shard was given up, or another processor reads it.
    #[error("the processor has ended: nothing can be checkpointed for it any more")]
    Over,
    /// The store refused the write, and will until somebody corrects the cause. The worker tries on.
    #[error("checkpoint not written")]
    Store(#[from] StoreError),
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
    /// Checkpoints all records that were delivered; in
    /// [`shard_ended`](crate::RecordProcessor::shard_ended), the end.
    ///
    /// Writes nothing if the store has that already, or nothing was delivered yet. While the store
    /// does not answer, this returns [`Checkpointed::Owed`].
    ///
    /// # Errors
    ///
    /// The lease is lost, the processor has ended, or the store refuses the write for a reason that
    /// does not pass.
    ///
    /// # Cancel safety
    ///
    /// The checkpoint counts as asked for: the worker writes it.
    pub async fn checkpoint(&self) -> Result<Checkpointed, CheckpointError> {
        let mut kept = self.shared.ledger.lock().await;
        self.ask_for_all(&mut kept)?;
        self.write_or_owe(&mut kept).await
    }

    /// Checkpoints all records up to and with `record`.
    ///
    /// Does nothing if a later checkpoint was asked for before: a checkpoint never goes back.
    ///
    /// # Errors
    ///
    /// As for [`checkpoint`](Self::checkpoint); and [`CheckpointError::OutOfRange`] if the record was
    /// not delivered yet.
    ///
    /// # Cancel safety
    ///
    /// As for [`checkpoint`](Self::checkpoint).
    ///
    /// # Examples
    ///
    /// After every 100 records. If the batch fails later, it is delivered again from the record after
    /// the last of these checkpoints:
    ///
    /// ```
    /// use async_trait::async_trait;
    /// use lease_kinesis::{
    ///     Batch, Checkpointer, Outcome, ProcessorError, Record, RecordProcessor,
    /// };
    ///
    /// struct Payments;
    ///
    /// impl Payments {
    ///     async fn pay(&self, record: &Record) -> Result<(), ProcessorError> {
    ///         println!("{}", record.number);
    ///         Ok(())
    ///     }
    ///
    ///     async fn pay_all(
    ///         &self,
    ///         batch: &Batch,
    ///         checkpointer: &Checkpointer,
    ///     ) -> Result<(), ProcessorError> {
    ///         for hundred in batch.records.chunks(100) {
    ///             for record in hundred {
    ///                 self.pay(record).await?;
    ///             }
    ///             if let Some(last) = hundred.last() {
    ///                 checkpointer.checkpoint_at(&last.number).await?;
    ///             }
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// #[async_trait]
    /// impl RecordProcessor for Payments {
    ///     async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
    ///         self.pay_all(batch, checkpointer).await.into()
    ///     }
    /// }
    /// ```
    pub async fn checkpoint_at(
        &self,
        record: &RecordNumber,
    ) -> Result<Checkpointed, CheckpointError> {
        let mut kept = self.shared.ledger.lock().await;
        let asked = Position::Record(record.clone());
        self.ask_for(&mut kept, asked.clone(), record)?;
        if asked <= kept.written {
            return Ok(Checkpointed::Kept);
        }
        self.write_or_owe(&mut kept).await
    }

    /// What the store has, as far as this checkpointer knows.
    pub async fn checkpointed(&self) -> Position {
        self.shared.ledger.lock().await.written.clone()
    }

    /// As [`checkpoint`](Self::checkpoint), without an `Owed`: asks the store also if it failed a
    /// moment ago, and returns its error.
    #[cfg(feature = "multilang")]
    pub(crate) async fn try_checkpoint(&self) -> Result<(), CheckpointError> {
        let mut kept = self.shared.ledger.lock().await;
        self.ask_for_all(&mut kept)?;
        self.shared.write(&mut kept).await
    }

    /// As [`checkpoint_at`](Self::checkpoint_at), without an `Owed`; and refuses a record before the
    /// checkpoint, as the Kinesis Client Library does.
    #[cfg(feature = "multilang")]
    pub(crate) async fn try_checkpoint_at(
        &self,
        record: &RecordNumber,
    ) -> Result<(), CheckpointError> {
        let mut kept = self.shared.ledger.lock().await;
        let asked = Position::Record(record.clone());
        let delivered = self.delivered(&kept)?;
        if asked < kept.written {
            let (record, checkpointed) = (record.clone(), kept.written.clone());
            return Err(CheckpointError::OutOfRange { record, checkpointed, delivered });
        }
        self.ask_for(&mut kept, asked, record)?;
        self.shared.write(&mut kept).await
    }

    /// Whether more was delivered than a checkpoint was asked for.
    pub(crate) async fn has_more(&self) -> bool {
        let kept = self.shared.ledger.lock().await;
        matches!(&*self.shared.reach(), Reach::Delivered(upto) if *upto > kept.asked)
    }

    /// Writes the checkpoint that is owed, if there is one.
    pub(crate) async fn flush(&self) -> Result<(), CheckpointError> {
        let mut kept = self.shared.ledger.lock().await;
        self.shared.write(&mut kept).await
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

    /// Takes back that more was delivered than `before`, as far as no checkpoint was asked for.
    /// Returns the last checkpoint that was asked for: what follows it is to be delivered again.
    pub(crate) async fn take_back(&self, before: Reach) -> Position {
        let kept = self.shared.ledger.lock().await;
        let asked = kept.asked.clone();
        let mut reach = self.shared.reach();
        *reach = match (before, &asked) {
            (Reach::Delivered(upto), _) => Reach::Delivered(upto.max(asked.clone())),
            (Reach::Nothing, Position::Record(_)) => Reach::Delivered(asked.clone()),
            (before, _) => before,
        };
        asked
    }

    /// Ends this checkpointer and its clones.
    pub(crate) fn close(&self) {
        *self.shared.reach() = Reach::Over;
    }

    fn ask_for_all(&self, kept: &mut Kept) -> Result<(), CheckpointError> {
        let asked = match &*self.shared.reach() {
            Reach::Delivered(upto) => upto.clone(),
            Reach::End(_) => Position::ShardEnd,
            Reach::Nothing => return Ok(()),
            Reach::Over => return Err(CheckpointError::Over),
        };
        kept.asked = asked.max(kept.asked.clone());
        Ok(())
    }

    fn ask_for(
        &self,
        kept: &mut Kept,
        asked: Position,
        record: &RecordNumber,
    ) -> Result<(), CheckpointError> {
        let delivered = self.delivered(kept)?;
        if asked > delivered {
            let (record, checkpointed) = (record.clone(), kept.written.clone());
            return Err(CheckpointError::OutOfRange { record, checkpointed, delivered });
        }
        kept.asked = asked.max(kept.asked.clone());
        Ok(())
    }

    /// The last position that may be asked for by number.
    fn delivered(&self, kept: &Kept) -> Result<Position, CheckpointError> {
        match &*self.shared.reach() {
            Reach::Delivered(upto) | Reach::End(Some(upto)) => Ok(upto.clone()),
            Reach::Nothing | Reach::End(None) => Ok(kept.asked.clone()),
            Reach::Over => Err(CheckpointError::Over),
        }
    }

    async fn write_or_owe(&self, kept: &mut Kept) -> Result<Checkpointed, CheckpointError> {
        // A store that throttles gets one write per pause, however fast the batches come.
        let text = "the last write failed, the next one is not due yet";
        let paused = kept.paused_by().map(|kind| StoreError::new(kind, text));
        if let Some(cause) = paused.filter(StoreError::is_retryable) {
            return Ok(Checkpointed::Owed(cause));
        }
        match self.shared.write(kept).await {
            Ok(()) => Ok(Checkpointed::Kept),
            Err(CheckpointError::Store(cause)) if cause.is_retryable() => {
                Ok(Checkpointed::Owed(cause))
            }
            Err(cause) => Err(cause),
        }
    }
}

impl Shared {
    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("reach", &self.reach()).finish_non_exhaustive()
    }
}
