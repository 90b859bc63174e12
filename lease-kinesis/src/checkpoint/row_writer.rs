//! Writes checkpoints to the shard's row.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::store::{Grant, LeaseTable, within};
use lease_core::{LossCause, StoreError, StoreErrorKind, Written};
use tracing::{debug, warn};

use super::error::CheckpointError;
use super::state::CheckpointWriter;
use crate::log_throttle::{LogLevel, LogThrottle};
use crate::position::Position;
use crate::status::StatusEntry;
use crate::table::row::{self, CheckpointAttributes, ShardRow};
use crate::time::now;

pub(crate) struct RowWriter {
    table: Arc<dyn LeaseTable>,
    grant: Grant,
    /// An unanswered request would otherwise block the processor.
    request_timeout: Duration,
    entry: StatusEntry,
    /// Each write requires these values in the row.
    attributes: CheckpointAttributes,
    failures: LogThrottle,
}

impl RowWriter {
    pub(crate) fn new(
        table: Arc<dyn LeaseTable>,
        request_timeout: Duration,
        grant: Grant,
        row: &ShardRow,
        entry: StatusEntry,
    ) -> Self {
        let (attributes, failures) = (row.written.clone(), LogThrottle::default());
        Self { table, grant, request_timeout, entry, attributes, failures }
    }

    async fn write_row(
        &mut self,
        written: &mut Position,
        requested: &Position,
    ) -> Result<(), CheckpointError> {
        let change = row::checkpoint(&self.attributes, requested);
        match within(self.request_timeout, self.table.update(&self.grant, &change)).await? {
            Written::Applied => {
                self.attributes = row::checkpoint_attributes(requested);
                written.clone_from(requested);
                self.entry.checkpointed(written);
                let (key, token) = (&self.grant.key, self.grant.token);
                debug!(%key, %token, checkpoint = %written, "checkpoint written");
                Ok(())
            }
            Written::Lost(cause) => Err(CheckpointError::Lost(cause)),
            // The row has another checkpoint: an earlier write was applied, and its answer was lost.
            Written::Unexpected => {
                *written = self.read_again().await?;
                Ok(())
            }
        }
    }

    async fn read_again(&mut self) -> Result<Position, CheckpointError> {
        let record = within(self.request_timeout, self.table.read(&self.grant.key)).await?;
        // Another process has deleted the row and the grant.
        let record = record.ok_or(CheckpointError::Lost(LossCause::Revoked))?;
        let attributes = row::written(&record);
        if attributes == self.attributes {
            let text = format!(
                "the store rejects the checkpoint of row {}, although the row is unchanged",
                record.key
            );
            return Err(StoreError::new(StoreErrorKind::Corrupt, text).into());
        }
        let written = row::position(&record)?;
        self.attributes = attributes;
        self.entry.checkpointed(&written);
        Ok(written)
    }
}

#[async_trait]
impl CheckpointWriter for RowWriter {
    async fn write(
        &mut self,
        written: &mut Position,
        requested: &Position,
    ) -> Result<(), CheckpointError> {
        let start = now();
        let outcome = self.write_row(written, requested).await;
        self.entry.checkpoint_answered(start, outcome.is_ok());
        let (key, token) = (&self.grant.key, self.grant.token);
        match &outcome {
            Ok(()) => self.failures = LogThrottle::default(),
            Err(CheckpointError::Store(cause)) => {
                let error = cause as &dyn Error;
                match self.failures.once_more() {
                    LogLevel::Warn => {
                        warn!(%key, %token, %requested, error, "checkpoint not written");
                    }
                    LogLevel::WarnThenRarely => {
                        warn!(
                            %key, %token, %requested, error,
                            "checkpoint not written; further failures are logged rarely"
                        );
                    }
                    LogLevel::Debug => {
                        debug!(%key, %token, %requested, error, "checkpoint not written");
                    }
                }
            }
            Err(_) => (),
        }
        outcome
    }
}
