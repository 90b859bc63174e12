//! What an operator does, with guards against what would be regretted.

use std::fmt;

use lease_core::{Attempt, Holder};

use crate::bucket::Bucket;
use crate::buffer::{Intake, StopCause};
use crate::exporter::Exporter;
use crate::exporter::error::ExportError;
use crate::exporter::exported::Flushed;

/// The commands of an operator on an exporter and its intake.
///
/// The *intake* is where events come in: the buckets, where the exporter has any, and the buffer
/// behind them; otherwise the buffer alone. That of buckets is closed until it is opened for the first time, and is open only while
/// export is enabled: nothing is collected that nobody would send. A buffer alone is open at first,
/// since it is bounded, and drops nothing unless it was told to.
///
/// # Errors
///
/// Of each command: where a service could not say.
#[derive(Debug, Clone, Copy)]
pub struct Operator<'a> {
    exporter: &'a Exporter,
}

/// Why a command was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a command that was refused changed nothing"]
#[non_exhaustive]
pub enum Refusal {
    /// The intake is not opened while export is disabled: it would only fill up.
    ExportIsDisabled,
    /// Export is not disabled while the intake is open: it would only fill up.
    IntakeIsOpen,
    /// Export is not disabled while the intake is stopped for lack of room: it would open by itself,
    /// once it is drained. Stop it first.
    IntakeOpensByItself,
}

/// What became of deleting.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "where somebody exports nothing was deleted"]
#[expect(clippy::exhaustive_enums, reason = "it was deleted, or somebody else has the lease")]
pub enum Deleted {
    /// So many buckets and events were deleted.
    Done(u64),
    /// Somebody exports, a job waits, or another operator deletes.
    Held(Holder),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExportIsDisabled => "the intake is not opened while export is disabled",
            Self::IntakeIsOpen => "export is not disabled while the intake is open",
            Self::IntakeOpensByItself => {
                "export is not disabled while the intake opens by itself: stop it first"
            }
        })
    }
}

#[expect(clippy::missing_errors_doc, reason = "said once, on the type")]
impl<'a> Operator<'a> {
    /// The operator of `exporter`.
    pub fn new(exporter: &'a Exporter) -> Self {
        Self { exporter }
    }

    /// Enables export.
    pub async fn enable(self) -> Result<(), ExportError> {
        self.exporter.enable().await
    }

    /// Disables export, unless the intake is open, or opens by itself.
    pub async fn disable(self) -> Result<Result<(), Refusal>, ExportError> {
        // Into the buffer behind buckets come only what they have, and nobody pours then.
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

    /// Whether export is enabled.
    pub async fn is_enabled(self) -> Result<bool, ExportError> {
        self.exporter.is_enabled().await
    }

    /// How many events are pending.
    pub async fn pending(self) -> Result<u64, ExportError> {
        self.exporter.num_pending_events().await
    }

    /// Sends up to `limit` pending events now.
    pub async fn flush(self, limit: Option<u64>) -> Result<Flushed, ExportError> {
        self.exporter.flush(limit).await
    }

    /// Opens the intake, that of buckets and of the buffer, unless export is disabled.
    pub async fn open_intake(self) -> Result<Result<(), Refusal>, ExportError> {
        if !self.is_enabled().await? {
            return Ok(Err(Refusal::ExportIsDisabled));
        }
        // The buffer first: buckets that find it closed are stopped again.
        self.exporter.parts.buffer.set_intake(Intake::Open).await?;
        if let Some(source) = &self.exporter.source {
            source.buckets().set_intake(Intake::Open).await?;
        }
        Ok(Ok(()))
    }

    /// Stops the intake, until it is opened: where there are buckets, theirs. What they have can still
    /// be poured into the buffer, and sent.
    pub async fn stop_intake(self) -> Result<(), ExportError> {
        match &self.exporter.source {
            Some(source) => source.buckets().set_intake(STOPPED).await?,
            None => self.exporter.parts.buffer.set_intake(STOPPED).await?,
        };
        Ok(())
    }

    /// Whether events are taken in: by the buckets, and by the buffer behind them.
    pub async fn intake(self) -> Result<Intake, ExportError> {
        if let Some(source) = &self.exporter.source
            && let stopped @ Intake::Stopped(_) = source.buckets().intake().await?
        {
            return Ok(stopped);
        }
        self.buffer_intake().await
    }

    /// Whether the intake, that of the buckets or of the buffer, was stopped for lack of room.
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

    /// Lists all buckets, oldest first, with the number of their keys; none, where there are no
    /// buckets.
    pub async fn list(self) -> Result<Vec<(Bucket, u64)>, ExportError> {
        Ok(match &self.exporter.source {
            Some(source) => source.buckets().list(Bucket::MIN..=Bucket::MAX).await?,
            None => Vec::new(),
        })
    }

    /// Removes everything that waits, in the buckets and in the buffer, and stops both first, under the
    /// exporter's lease; says how many buckets and events there were, together. Where somebody else has
    /// the lease, the intake is stopped, and nothing is deleted.
    pub async fn delete(self) -> Result<Deleted, ExportError> {
        self.stop_intake().await?;
        self.alone(async {
            // Opened by somebody else in between: then nothing is deleted there.
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

    /// How many events are set aside in the buffer, since they cannot be sent.
    pub async fn num_set_aside(self) -> Result<u64, ExportError> {
        Ok(self.exporter.parts.buffer.state().await?.set_aside)
    }

    /// Removes what is set aside in the buffer, under the exporter's lease; says how many events
    /// there were.
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
