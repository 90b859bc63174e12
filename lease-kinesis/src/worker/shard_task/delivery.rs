//! Delivers batches to the processor, and checkpoints between them.

use std::error::Error;
use std::future::pending;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{Instrument, warn};

use super::{Interrupted, ShardTask};
use crate::checkpoint::Checkpointer;
use crate::processor::{NeedsRestart, Outcome, ProcessorError, RecordProcessor};
use crate::record::Batch;
use crate::settings::Checkpoints;
use crate::shard::ShardId;
use crate::time::now;

impl ShardTask {
    pub(super) async fn work(
        &mut self,
        processor: &mut dyn RecordProcessor,
        checkpointer: &Checkpointer,
        mut batch: Batch,
    ) -> Result<(), Interrupted> {
        let before = checkpointer.reach();
        let mut failures = 0;
        loop {
            if let Some(last) = batch.last() {
                checkpointer.deliver(last.clone());
            }
            let outcome = self.process(processor, checkpointer, &batch).await?;
            let bytes = batch.bytes();
            if let Outcome::Continue = outcome {
                self.entry.worked(batch.records.len(), bytes);
                return self.checkpoint_if_due(checkpointer).await;
            }
            // Only the records after the requested checkpoint are delivered again.
            let requested = self.guarded(None, checkpointer.take_back(before.clone())).await?;
            let done = batch.drop_until(&requested);
            self.entry.worked(done, bytes - batch.bytes());
            if done > 0 {
                failures = 0;
            }
            let is_done = done > 0 && batch.records.is_empty();
            let shard = &self.row.shard;
            let pause = match outcome {
                Outcome::Skip => {
                    let (records, last) = (batch.records.len(), batch.last());
                    warn!(%shard, records, ?last, "processor skipped a batch");
                    self.entry.skipped(&batch);
                    if let Some(last) = last {
                        checkpointer.deliver(last.clone());
                    }
                    return self.checkpoint_if_due(checkpointer).await;
                }
                Outcome::StopShard(cause) => return Err(Interrupted::GiveUp(cause)),
                Outcome::StopWorker(cause) => return Err(Interrupted::StopWorker(cause)),
                Outcome::Failed(cause) => {
                    let cause = self.unless_restart(cause, &batch)?;
                    if is_done {
                        warn_of_late_failure(shard, &*cause);
                        return self.checkpoint_if_due(checkpointer).await;
                    }
                    failures += 1;
                    self.after_failure(cause, &batch, failures)?
                }
                Outcome::Retry(_) if is_done => {
                    return self.checkpoint_if_due(checkpointer).await;
                }
                Outcome::Retry(pause) => pause,
                Outcome::Continue => Duration::ZERO,
            };
            self.entry.failed(&batch);
            batch.attempt += 1;
            self.pause(pause).await?;
        }
    }

    /// Calls the processor once, in a span, and reports the call to metrics.
    async fn process(
        &self,
        processor: &mut dyn RecordProcessor,
        checkpointer: &Checkpointer,
        batch: &Batch,
    ) -> Result<Outcome, Interrupted> {
        let span = self.span("process_records", batch.attempt);
        let work = processor.process_records(batch, checkpointer).instrument(span);
        let start = now();
        let outcome = self.guarded(self.settings.batch_limit, work).await;
        self.entry.called(start, matches!(outcome, Ok(Outcome::Continue | Outcome::Skip)));
        outcome
    }

    /// Returns `cause`, or fails with a restart if `cause` asks for another processor.
    fn unless_restart(
        &self,
        cause: ProcessorError,
        batch: &Batch,
    ) -> Result<ProcessorError, Interrupted> {
        NeedsRestart::cause(cause).map_or_else(Ok, |cause| {
            self.entry.failed(batch);
            Err(Interrupted::Restart(cause))
        })
    }

    /// Returns the pause after a failure, or an error at the maximum number of failures.
    fn after_failure(
        &self,
        cause: ProcessorError,
        batch: &Batch,
        failures: u32,
    ) -> Result<Duration, Interrupted> {
        if self.settings.failures.is_some_and(|most| failures >= most) {
            self.entry.failed(batch);
            return Err(Interrupted::GiveUp(cause));
        }
        let (shard, pause) = (&self.row.shard, self.settings.backoff(failures));
        warn!(%shard, failures, ?pause, error = &*cause as &dyn Error, "batch failed, retrying");
        Ok(pause)
    }

    /// Never completes if the processor decides when to checkpoint, or no record needs a checkpoint.
    pub(super) async fn checkpoint_due(&self, checkpointer: &Checkpointer) {
        let due = match self.settings.checkpoints {
            Checkpoints::Every(length) if checkpointer.has_more().await => length,
            Checkpoints::Every(_) | Checkpoints::ByProcessor => return pending().await,
        };
        sleep(due.saturating_sub(self.entry.since_checkpoint())).await;
    }

    pub(super) async fn checkpoint_if_due(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), Interrupted> {
        if !self.settings.checkpoints.is_due(self.entry.since_checkpoint()) {
            return Ok(());
        }
        if let Err(cause) = self.guarded(None, checkpointer.checkpoint()).await? {
            let error = &cause as &dyn Error;
            warn!(shard = %self.row.shard, error, "checkpoint failed, retrying later");
        }
        Ok(())
    }
}

fn warn_of_late_failure(shard: &ShardId, error: &(dyn Error + 'static)) {
    warn!(%shard, error, "processor failed after it had checkpointed its batch");
}
