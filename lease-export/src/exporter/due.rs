//! Decides whether a job sends the pending events, or waits for more.

use crate::buffer::Intake;
use crate::exporter::Exporter;
use crate::exporter::error::ExportError;

impl Exporter {
    /// Returns whether enough events are pending, or the oldest has waited long enough.
    pub(crate) async fn is_due(&self) -> Result<bool, ExportError> {
        let buffer = &self.parts.buffer;
        if buffer.pending().await? >= self.least().await? {
            return Ok(true);
        }
        let age = buffer.oldest_age().await?;
        Ok(age.is_some_and(|age| age >= self.max_wait))
    }

    async fn least(&self) -> Result<u64, ExportError> {
        let buffer = &self.parts.buffer;
        let mut is_open = buffer.state().await?.intake == Intake::Open;
        if let Some(source) = &self.source {
            // If the buckets do not answer, the job sends: a wait for their events might never end.
            is_open &= matches!(source.buckets().intake().await, Ok(Intake::Open));
        }
        // If the intake is stopped, the job sends, since the missing events will not come.
        let least = if is_open { self.min_per_job.min(buffer.capacity().events()) } else { 1 };
        Ok(least.max(1))
    }
}
