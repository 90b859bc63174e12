//! Writes checkpoints to the shard's row.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{Grant, LeaseTable, LossCause, StoreError, StoreErrorKind, Written};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::CheckpointError;
use super::ledger::Keeper;
use crate::board::Entry;
use crate::position::Position;
use crate::repeats::{Repeats, Telling};
use crate::row::{self, ShardRow, Words};
use crate::settings::Settings;

/// The row of one shard, under one grant.
pub(super) struct OnRow {
    table: Arc<dyn LeaseTable>,
    grant: Grant,
    request_timeout: Duration,
    entry: Entry,
    /// The checkpoint as the row has it. Each write expects it, so a late one undoes no newer one.
    words: Words,
    failures: Repeats,
}

impl OnRow {
    pub(super) fn new(settings: &Settings, grant: Grant, row: &ShardRow, entry: Entry) -> Self {
        Self {
            table: Arc::clone(&settings.table),
            grant,
            request_timeout: settings.options.request_timeout(),
            entry,
            words: row.written.clone(),
            failures: Repeats::default(),
        }
    }

    async fn write(
        &mut self,
        written: &mut Position,
        asked: &Position,
    ) -> Result<(), CheckpointError> {
        let change = row::checkpoint(&self.words, asked);
        match self.in_time(self.table.update(&self.grant, &change)).await? {
            Written::Applied => {
                self.words = row::words(asked);
                written.clone_from(asked);
                self.entry.checkpointed(written);
                let (key, token) = (&self.grant.key, self.grant.token);
                debug!(%key, %token, checkpoint = %written, "checkpoint written");
                Ok(())
            }
            Written::Lost(cause) => Err(CheckpointError::Lost(cause)),
            // An earlier write, whose answer was lost, was applied.
            Written::Unexpected => {
                *written = self.read_again().await?;
                Ok(())
            }
        }
    }

    async fn read_again(&mut self) -> Result<Position, CheckpointError> {
        let record = self.in_time(self.table.read(&self.grant.key)).await?;
        // The row was deleted, and the grant with it.
        let record = record.ok_or(CheckpointError::Lost(LossCause::Revoked))?;
        let words = row::written(&record);
        if words == self.words {
            let text = format!("the checkpoint of row {} never is as expected", record.key);
            return Err(StoreError::new(StoreErrorKind::Corrupt, text).into());
        }
        let written = row::position(&record)?;
        self.words = words;
        self.entry.checkpointed(&written);
        Ok(written)
    }

    /// A request without an answer must not hold the processor up.
    async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = self.request_timeout;
        let too_late = |_elapsed| {
            StoreError::new(StoreErrorKind::Unavailable, format!("no answer within {limit:?}"))
        };
        timeout(limit, request).await.map_err(too_late)?
    }
}

#[async_trait]
impl Keeper for OnRow {
    async fn keep(
        &mut self,
        written: &mut Position,
        asked: &Position,
    ) -> Result<(), CheckpointError> {
        let outcome = self.write(written, asked).await;
        let (key, token) = (&self.grant.key, self.grant.token);
        match &outcome {
            Ok(()) => self.failures = Repeats::default(),
            Err(CheckpointError::Store(cause)) => {
                let error = cause as &dyn Error;
                match self.failures.once_more() {
                    Telling::Aloud => warn!(%key, %token, %asked, error, "checkpoint not written"),
                    Telling::AloudThenSeldom => {
                        warn!(%key, %token, %asked, error, "checkpoint not written; logged seldom from here on");
                    }
                    Telling::Quietly => {
                        debug!(%key, %token, %asked, error, "checkpoint not written");
                    }
                }
            }
            Err(_) => (),
        }
        outcome
    }
}
