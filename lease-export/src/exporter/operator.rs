//! The operator's commands.

use std::fmt;

use lease_core::{Attempt, Holder};

use crate::bucket::Bucket;
use crate::buffer::{Intake, StopCause};
use crate::exporter::Exporter;
use crate::exporter::error::ExportError;
use crate::exporter::exported::Flushed;

/// The operator's commands on an exporter and its intake.
///
/// The *intake* takes new data: the buffer, or the buckets and the buffer behind them. The intake
/// of buckets is stopped at first. The intake may be open only while export is enabled, since only
/// exports remove the data. A buffer without buckets is open at first: the buffer is bounded, and drops
/// events only with [`Overflow::DropOldest`](crate::Overflow::DropOldest).
///
/// # Errors
///
/// Each command fails if a service did not answer.
///
/// # Cancel safety
///
/// A dropped command may be applied in part, and can be repeated. Its lease is released.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use lease_core::Locker;
/// # use lease_export::queue::MemoryQueue;
/// # use lease_export::{Capacity, Limits, MemoryBuffer, MemorySink, Parts, TableSwitch};
/// # use lease_memory::MemoryStore;
/// use lease_export::{Exporter, Operator, Refusal};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = MemoryStore::new();
/// # let locker = Locker::new(store.clone());
/// # let parts = Parts {
/// #     switch: Arc::new(TableSwitch::new("export/enabled".parse()?, &locker, store)),
/// #     queue: Arc::new(MemoryQueue::new(Duration::from_secs(60))),
/// #     buffer: Arc::new(MemoryBuffer::new(Capacity::default())),
/// #     sink: Arc::new(MemorySink::new(Limits::KINESIS)),
/// # };
/// # let exporter = Exporter::new(locker, "export".parse()?, parts);
/// let operator = Operator::new(&exporter);
/// operator.enable().await?;
///
/// // The buffer would fill up while export is disabled.
/// assert_eq!(operator.disable().await?, Err(Refusal::IntakeIsOpen));
///
/// operator.stop_intake().await?;
/// assert_eq!(operator.disable().await?, Ok(()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Operator<'a> {
    exporter: &'a Exporter,
}

/// Why a command was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a command that was refused changed nothing"]
#[non_exhaustive]
pub enum Refusal {
    /// The intake cannot open while export is disabled, since the intake would fill up.
    ExportIsDisabled,
    /// Export cannot be disabled while the intake is open, since the intake would fill up.
    IntakeIsOpen,
    /// The intake is stopped for lack of room, and opens when no data is left. An operator must stop
    /// the intake before export can be disabled.
    IntakeOpensByItself,
}

/// The result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "nothing is deleted while another process has the lease"]
#[expect(clippy::exhaustive_enums, reason = "it was deleted, or another process has the lease")]
pub enum Deleted {
    /// The number of deleted buckets and events.
    Done(u64),
    /// Another process exports or deletes, or the lease is reserved for a job in the queue.
    Held(Holder),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExportIsDisabled => "the intake cannot be opened while export is disabled",
            Self::IntakeIsOpen => "export cannot be disabled while the intake is open",
            Self::IntakeOpensByItself => {
                "export cannot be disabled while the intake reopens by itself: stop it first"
            }
        })
    }
}

#[expect(clippy::missing_errors_doc, reason = "the type documents it")]
impl<'a> Operator<'a> {
    /// Makes the commands for `exporter`.
    pub fn new(exporter: &'a Exporter) -> Self {
        Self { exporter }
    }

    /// Enables export.
    pub async fn enable(self) -> Result<(), ExportError> {
        self.exporter.enable().await
    }

    /// Disables export, unless the intake is open or reopens by itself.
    pub async fn disable(self) -> Result<Result<(), Refusal>, ExportError> {
        // Without exports, no data moves from the buckets into the buffer. So the buckets' intake
        // decides.
        let entrance = match &self.exporter.source {
            Some(source) => source.buckets().intake().await?,
            None => self.buffer_intake().await?,
        };
        match entrance {
            Intake::Open => Ok(Err(Refusal::IntakeIsOpen)),
            Intake::Stopped(StopCause::Emergency) => Ok(Err(Refusal::IntakeOpensByItself)),
            Intake::Stopped(StopCause::Operator) => self.exporter.disable().await.map(Ok),
        }
    }

    /// Returns whether export is enabled.
    pub async fn is_enabled(self) -> Result<bool, ExportError> {
        self.exporter.is_enabled().await
    }

    /// Returns the number of pending events.
    pub async fn pending(self) -> Result<u64, ExportError> {
        self.exporter.num_pending_events().await
    }

    /// Sends up to `limit` pending events now, or all.
    pub async fn flush(self, limit: Option<u64>) -> Result<Flushed, ExportError> {
        self.exporter.flush(limit).await
    }

    /// Opens the intake of the buffer and the buckets, unless export is disabled.
    pub async fn open_intake(self) -> Result<Result<(), Refusal>, ExportError> {
        if !self.is_enabled().await? {
            return Ok(Err(Refusal::ExportIsDisabled));
        }
        // The buffer opens first: a job that finds the buffer stopped would stop the buckets again.
        self.exporter.parts.buffer.set_intake(Intake::Open).await?;
        if let Some(source) = &self.exporter.source {
            source.buckets().set_intake(Intake::Open).await?;
        }
        Ok(Ok(()))
    }

    /// Stops the intake of the buckets, or of a buffer without buckets, until an operator opens it.
    /// Data in the buckets and the buffer can still be exported.
    pub async fn stop_intake(self) -> Result<(), ExportError> {
        match &self.exporter.source {
            Some(source) => source.buckets().set_intake(STOPPED).await?,
            None => self.exporter.parts.buffer.set_intake(STOPPED).await?,
        };
        Ok(())
    }

    /// Returns whether the buckets and the buffer take new data.
    pub async fn intake(self) -> Result<Intake, ExportError> {
        if let Some(source) = &self.exporter.source
            && let stopped @ Intake::Stopped(_) = source.buckets().intake().await?
        {
            return Ok(stopped);
        }
        self.buffer_intake().await
    }

    /// Returns whether the buckets or the buffer stopped their intake for lack of room.
    pub async fn is_emergency(self) -> Result<bool, ExportError> {
        let emergency = Intake::Stopped(StopCause::Emergency);
        if let Some(source) = &self.exporter.source
            && source.buckets().intake().await? == emergency
        {
            return Ok(true);
        }
        Ok(self.buffer_intake().await? == emergency)
    }

    async fn buffer_intake(self) -> Result<Intake, ExportError> {
        Ok(self.exporter.parts.buffer.state().await?.intake)
    }

    /// Lists all buckets, oldest first, with the number of their keys. Empty without buckets.
    pub async fn list(self) -> Result<Vec<(Bucket, u64)>, ExportError> {
        Ok(match &self.exporter.source {
            Some(source) => source.buckets().list(Bucket::MIN..=Bucket::MAX).await?,
            None => Vec::new(),
        })
    }

    /// Stops the intakes, then deletes all buckets and pending events under the exporter's lease.
    /// Returns the number of buckets and events together. Deletes nothing if another process has
    /// the lease.
    pub async fn delete(self) -> Result<Deleted, ExportError> {
        self.stop_intake().await?;
        self.alone(async {
            // If another operator has just opened an intake, nothing is deleted there.
            let buckets = match &self.exporter.source {
                Some(source) => source.buckets().clear().await?.unwrap_or(0),
                None => 0,
            };
            self.exporter.parts.buffer.set_intake(STOPPED).await?;
            let events = self.exporter.parts.buffer.clear().await?.unwrap_or(0);
            Ok(buckets + events)
        })
        .await
    }

    /// Returns the number of events that are set aside in the buffer.
    pub async fn num_set_aside(self) -> Result<u64, ExportError> {
        Ok(self.exporter.parts.buffer.state().await?.set_aside)
    }

    /// Deletes the events that are set aside in the buffer, under the exporter's lease. Returns
    /// their number.
    pub async fn delete_aside(self) -> Result<Deleted, ExportError> {
        self.alone(async { Ok(self.exporter.parts.buffer.clear_aside().await?) }).await
    }

    async fn alone(
        self,
        work: impl Future<Output = Result<u64, ExportError>>,
    ) -> Result<Deleted, ExportError> {
        let Exporter { locker, key, .. } = self.exporter;
        match locker.obtain(key).await.map_err(ExportError::Lease)? {
            Attempt::Obtained(lease) => Ok(Deleted::Done(self.exporter.under(lease, work).await?)),
            Attempt::Held(holder) => Ok(Deleted::Held(holder)),
        }
    }
}

const STOPPED: Intake = Intake::Stopped(StopCause::Operator);
