//! A checkpoint states how far a shard was read. Only the holder of the shard's lease can store it.
//!
//! A checkpoint never decreases. Start with [`Checkpointer`], the processor's handle. `state` holds the
//! stored checkpoint and the requested checkpoint, and retries failed writes. `row_writer` writes a
//! checkpoint to the shard's row. `error` has the results and the errors.

mod error;
mod row_writer;
mod state;

use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lease_core::StoreError;
use parking_lot::{Mutex, MutexGuard};

pub use self::error::{CheckpointError, Checkpointed};
pub(crate) use self::row_writer::RowWriter;
pub use self::state::CheckpointWriter;
use self::state::Progress;
pub(crate) use self::state::{CheckpointState, LONGEST_PAUSE};
use crate::position::{Position, RecordNumber};

/// Writes how far a shard has been read.
///
/// Each write requires the lease and the previous checkpoint. Clones share one state. After the processor has
/// ended, all calls return [`CheckpointError::Over`].
///
/// If a batch fails after a checkpoint inside the batch, the worker delivers only the later records again.
#[derive(Clone)]
pub struct Checkpointer {
    shared: Arc<Shared>,
}

struct Shared {
    state: Arc<CheckpointState>,
    reach: Mutex<Delivered>,
}

/// The checkpointer of one processor, and the records that this processor has received.
///
/// This type is for programs that call a [`RecordProcessor`](crate::RecordProcessor) without a
/// [`Worker`](crate::Worker). Dropping the scope ends the checkpointer and its clones.
pub struct CheckpointScope(Checkpointer);

/// The records that a processor has received, and may checkpoint.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Delivered {
    /// No record was delivered yet.
    Nothing,
    /// All records up to and including this position were delivered.
    UpTo(Position),
    /// The end of the shard was delivered, after all records up to and including this position. `None` stands
    /// for a shard without records.
    End(Option<Position>),
    /// The processor has ended, and may not checkpoint.
    Over,
}

impl Deref for CheckpointScope {
    type Target = Checkpointer;

    fn deref(&self) -> &Checkpointer {
        &self.0
    }
}

impl Drop for CheckpointScope {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl CheckpointScope {
    pub(crate) fn of(state: &Arc<CheckpointState>) -> Self {
        let (state, reach) = (Arc::clone(state), Mutex::new(Delivered::Nothing));
        Self(Checkpointer { shared: Arc::new(Shared { state, reach }) })
    }

    /// Starts a scope in which `writer` writes the checkpoints. `written` is the stored checkpoint.
    pub fn new(writer: impl CheckpointWriter, written: Position) -> Self {
        let pause = Box::new(|_failures| Duration::ZERO);
        Self::of(&CheckpointState::new(Box::new(writer), written, pause))
    }

    /// Records that the processor has received all records up to and including `upto`.
    pub fn deliver(&self, upto: RecordNumber) {
        self.0.deliver(upto);
    }

    /// Records that the processor has received the end of the shard.
    pub fn deliver_end(&self) {
        self.0.deliver_end();
    }

    /// Returns the records that the processor has received.
    pub fn delivered(&self) -> Delivered {
        self.0.reach()
    }

    /// Resets the delivered records to `before`, or to the last requested checkpoint if that is later.
    /// Returns the last requested checkpoint.
    pub async fn take_back(&self, before: Delivered) -> Position {
        self.0.take_back(before).await
    }

    /// Writes the pending checkpoint.
    ///
    /// # Errors
    ///
    /// Returns the error of the writer, or [`CheckpointError::Over`] after [`close`](Self::close).
    pub async fn flush(&self) -> Result<(), CheckpointError> {
        self.0.flush().await
    }

    /// Ends the checkpointer and its clones.
    pub fn close(&self) {
        self.0.close();
    }
}

impl fmt::Debug for CheckpointScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointScope")
            .field("delivered", &self.delivered())
            .finish_non_exhaustive()
    }
}

impl Checkpointer {
    /// Checkpoints all delivered records. In [`shard_ended`](crate::RecordProcessor::shard_ended),
    /// checkpoints the end of the shard.
    ///
    /// Writes nothing if the store has this checkpoint already. Returns [`Checkpointed::Pending`] while the
    /// store does not answer.
    ///
    /// # Errors
    ///
    /// Fails if the lease is lost or the processor has ended. Fails if the store rejects the write with an
    /// error that is not retryable.
    ///
    /// # Cancel safety
    ///
    /// If the caller drops the call, the worker still writes the checkpoint.
    pub async fn checkpoint(&self) -> Result<Checkpointed, CheckpointError> {
        let mut progress = self.shared.state.lock().await;
        self.request_all(&mut progress)?;
        self.write_or_defer(&mut progress).await
    }

    /// Checkpoints all records up to and including `record`.
    ///
    /// Changes nothing if a checkpoint at a later record was already requested.
    ///
    /// # Errors
    ///
    /// Fails as [`checkpoint`](Self::checkpoint) does. Fails with [`CheckpointError::OutOfRange`] if the
    /// record was not delivered yet.
    ///
    /// # Cancel safety
    ///
    /// As for [`checkpoint`](Self::checkpoint).
    ///
    /// # Examples
    ///
    /// This processor checkpoints every 100 records:
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
        let mut progress = self.shared.state.lock().await;
        let requested = Position::Record(record.clone());
        self.request(&mut progress, requested.clone(), record)?;
        if requested <= progress.written {
            return Ok(Checkpointed::Stored);
        }
        self.write_or_defer(&mut progress).await
    }

    /// Returns the last checkpoint that this checkpointer knows to be stored.
    pub async fn checkpointed(&self) -> Position {
        self.shared.state.lock().await.written.clone()
    }

    /// Checkpoints all delivered records, and waits for the store's answer.
    ///
    /// Unlike [`checkpoint`](Self::checkpoint), sends a request even shortly after a failed request. Returns
    /// the store's error instead of [`Checkpointed::Pending`].
    ///
    /// # Errors
    ///
    /// Fails as [`checkpoint`](Self::checkpoint) does, and if the store throttles or does not answer.
    ///
    /// # Cancel safety
    ///
    /// As for [`checkpoint`](Self::checkpoint).
    pub async fn try_checkpoint(&self) -> Result<(), CheckpointError> {
        let mut progress = self.shared.state.lock().await;
        self.request_all(&mut progress)?;
        self.shared.write(&mut progress).await
    }

    /// Checkpoints all records up to and including `record`, and waits for the store's answer.
    ///
    /// Unlike [`checkpoint_at`](Self::checkpoint_at), rejects a record before the checkpoint, as the Kinesis
    /// Client Library does. Returns the store's error instead of [`Checkpointed::Pending`].
    ///
    /// # Errors
    ///
    /// Fails as [`try_checkpoint`](Self::try_checkpoint) does. Fails with [`CheckpointError::OutOfRange`] if
    /// the record was not delivered yet, or comes before the checkpoint.
    ///
    /// # Cancel safety
    ///
    /// As for [`checkpoint`](Self::checkpoint).
    pub async fn try_checkpoint_at(&self, record: &RecordNumber) -> Result<(), CheckpointError> {
        let mut progress = self.shared.state.lock().await;
        let requested = Position::Record(record.clone());
        let delivered = self.delivered(&progress)?;
        if requested < progress.written {
            let (record, checkpointed) = (record.clone(), progress.written.clone());
            return Err(CheckpointError::OutOfRange { record, checkpointed, delivered });
        }
        self.request(&mut progress, requested, record)?;
        self.shared.write(&mut progress).await
    }

    /// Reports whether records were delivered after the last requested checkpoint.
    pub(crate) async fn has_more(&self) -> bool {
        let progress = self.shared.state.lock().await;
        matches!(&*self.shared.reach(), Delivered::UpTo(upto) if *upto > progress.requested)
    }

    pub(crate) async fn flush(&self) -> Result<(), CheckpointError> {
        let mut progress = self.shared.state.lock().await;
        self.shared.write(&mut progress).await
    }

    pub(crate) async fn settle(&self) -> Infallible {
        self.shared.state.settle(|| self.shared.is_over()).await
    }

    pub(crate) fn reach(&self) -> Delivered {
        self.shared.reach().clone()
    }

    pub(crate) fn deliver(&self, upto: RecordNumber) {
        let mut reach = self.shared.reach();
        if !matches!(*reach, Delivered::Over) {
            *reach = Delivered::UpTo(Position::Record(upto));
        }
    }

    pub(crate) fn deliver_end(&self) {
        let mut reach = self.shared.reach();
        *reach = match std::mem::replace(&mut *reach, Delivered::Over) {
            Delivered::Nothing => Delivered::End(None),
            Delivered::UpTo(upto) => Delivered::End(Some(upto)),
            ended @ (Delivered::End(_) | Delivered::Over) => ended,
        };
    }

    /// Resets the delivered records to `before`, or to the last requested checkpoint if that is later.
    pub(crate) async fn take_back(&self, before: Delivered) -> Position {
        let progress = self.shared.state.lock().await;
        let requested = progress.requested.clone();
        let mut reach = self.shared.reach();
        *reach = match (before, &requested) {
            (Delivered::UpTo(upto), _) => Delivered::UpTo(upto.max(requested.clone())),
            (Delivered::Nothing, Position::Record(_)) => Delivered::UpTo(requested.clone()),
            (before, _) => before,
        };
        requested
    }

    pub(crate) fn close(&self) {
        *self.shared.reach() = Delivered::Over;
    }

    fn request_all(&self, progress: &mut Progress) -> Result<(), CheckpointError> {
        let requested = match &*self.shared.reach() {
            Delivered::UpTo(upto) => upto.clone(),
            Delivered::End(_) => Position::ShardEnd,
            Delivered::Nothing => return Ok(()),
            Delivered::Over => return Err(CheckpointError::Over),
        };
        progress.requested = requested.max(progress.requested.clone());
        Ok(())
    }

    fn request(
        &self,
        progress: &mut Progress,
        requested: Position,
        record: &RecordNumber,
    ) -> Result<(), CheckpointError> {
        let delivered = self.delivered(progress)?;
        if requested > delivered {
            let (record, checkpointed) = (record.clone(), progress.written.clone());
            return Err(CheckpointError::OutOfRange { record, checkpointed, delivered });
        }
        progress.requested = requested.max(progress.requested.clone());
        Ok(())
    }

    /// Returns the last position that [`checkpoint_at`](Self::checkpoint_at) may request.
    fn delivered(&self, progress: &Progress) -> Result<Position, CheckpointError> {
        match &*self.shared.reach() {
            Delivered::UpTo(upto) | Delivered::End(Some(upto)) => Ok(upto.clone()),
            Delivered::Nothing | Delivered::End(None) => Ok(progress.requested.clone()),
            Delivered::Over => Err(CheckpointError::Over),
        }
    }

    async fn write_or_defer(
        &self,
        progress: &mut Progress,
    ) -> Result<Checkpointed, CheckpointError> {
        // Fast batches must not shorten the pause after a failed write.
        let text = "the last write failed, the next one is not due yet";
        let paused = progress.paused_by().map(|kind| StoreError::new(kind, text));
        if let Some(cause) = paused.filter(StoreError::is_retryable) {
            return Ok(Checkpointed::Pending(cause));
        }
        match self.shared.write(progress).await {
            Ok(()) => Ok(Checkpointed::Stored),
            Err(CheckpointError::Store(cause)) if cause.is_retryable() => {
                Ok(Checkpointed::Pending(cause))
            }
            Err(cause) => Err(cause),
        }
    }
}

impl Shared {
    async fn write(&self, progress: &mut Progress) -> Result<(), CheckpointError> {
        self.state.write(progress, || self.is_over()).await
    }

    fn is_over(&self) -> bool {
        matches!(*self.reach(), Delivered::Over)
    }

    fn reach(&self) -> MutexGuard<'_, Delivered> {
        self.reach.lock()
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("reach", &self.reach()).finish_non_exhaustive()
    }
}
