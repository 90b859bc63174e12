//! Stops reading a shard: at the shard's end, or for a hand-over.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{Lessee, LossCause, Written};
use tokio::time::timeout;
use tracing::{Instrument, info, warn};

use super::{Interrupted, Order, ShardTask, TaskEnd};
use crate::checkpoint::{Checkpointer, LONGEST_PAUSE};
use crate::position::Position;
use crate::processor::{NeedsRestart, RecordProcessor};
use crate::settings::Checkpoints;
use crate::shard::Shard;

impl ShardTask {
    /// Creates the rows of the children, and checkpoints the end.
    pub(super) async fn end_of_shard(
        &mut self,
        processor: &mut dyn RecordProcessor,
        checkpointer: &Checkpointer,
        children: Vec<Shard>,
    ) -> Result<TaskEnd, Interrupted> {
        let mut failures = 0;
        let children = loop {
            let sync = Arc::clone(&self.sync);
            let made = sync.follow(&self.lease, &self.row, children.clone());
            match self.guarded(None, made).await? {
                Ok(children) => break children,
                Err(cause) => {
                    failures += 1;
                    let pause = self.settings.backoff(failures).min(MAX_WAIT_FOR_CHILDREN);
                    let shard = &self.row.shard;
                    warn!(%shard, ?pause, error = &*cause, "rows of the shard's children not created");
                    self.pause(pause).await?;
                }
            }
        };
        let before = checkpointer.reach();
        checkpointer.deliver_end();
        let mut failures = 0;
        loop {
            let limit = self.settings.batch_limit;
            let span = self.span("shard_ended", failures);
            let ended = processor.shard_ended(checkpointer).instrument(span);
            let ended = self.guarded(limit, ended).await?;
            if ended.is_ok() {
                // The processor has accepted the end, so the worker retries only the checkpoint.
                self.write_last_checkpoint(checkpointer).await?;
            }
            let checkpointed = self.guarded(None, checkpointer.checkpointed()).await?;
            if checkpointed == Position::ShardEnd {
                break;
            }
            failures += 1;
            let pause = self.settings.backoff(failures);
            let cause =
                ended.err().unwrap_or_else(|| "the processor did not checkpoint the end".into());
            let cause = match NeedsRestart::cause(cause) {
                Ok(cause) => return Err(Interrupted::Restart(cause)),
                Err(cause) => cause,
            };
            let shard = &self.row.shard;
            warn!(%shard, ?pause, error = &*cause as &dyn Error, "end of shard not checkpointed");
            if let Err(interrupted) = self.pause(pause).await {
                // The processor has not accepted the end, so `shutdown_requested` must not checkpoint the
                // end.
                self.guarded(None, checkpointer.take_back(before)).await?;
                return Err(interrupted);
            }
        }
        info!(shard = %self.row.shard, ?children, "shard read to its end");
        self.entry.ended();
        Ok(TaskEnd::ShardEnd { children, lease: Arc::clone(&self.lease) })
    }

    pub(super) async fn shut_down(
        &mut self,
        processor: &mut dyn RecordProcessor,
        checkpointer: &Checkpointer,
    ) -> Result<TaskEnd, Interrupted> {
        let span = self.span("shutdown_requested", 0);
        let shutdown = processor.shutdown_requested(checkpointer).instrument(span);
        if let Err(cause) = self.guarded(self.settings.batch_limit, shutdown).await? {
            let error = &*cause as &dyn Error;
            warn!(shard = %self.row.shard, error, "processor failed to shut down");
        }
        // The next worker starts at this checkpoint.
        self.write_last_checkpoint(checkpointer).await?;
        self.hand_over(checkpointer).await
    }

    pub(super) async fn hand_over(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<TaskEnd, Interrupted> {
        checkpointer.close();
        if !self.lease.is_held() {
            return Err(Interrupted::Lost);
        }
        let mut unanswered = 0;
        loop {
            let Order::Give(Some(to)) = self.orders.borrow().clone() else {
                return Ok(TaskEnd::Given);
            };
            if self.guarded(None, self.is_leaving(&to)).await? {
                info!(shard = %self.row.shard, %to, "shard released, since its next worker leaves");
                return Ok(TaskEnd::Given);
            }
            unanswered += 1;
            let interrupted = match self.guarded(None, self.transfer(&to)).await {
                Ok(Ok(Written::Applied)) => return Ok(self.handed_over_to(&to).await),
                Ok(Ok(Written::Lost(_) | Written::Unexpected)) => {
                    unanswered -= 1;
                    Interrupted::Lost
                }
                Ok(Err(cause)) => {
                    let shard = &self.row.shard;
                    warn!(%shard, %to, error = &cause as &dyn Error, "hand-over failed, retrying");
                    match self.wait(self.settings.backoff(unanswered)).await {
                        Ok(()) => continue,
                        Err(interrupted) => interrupted,
                    }
                }
                Err(interrupted) => interrupted,
            };
            // Only a transfer or an operator ends a lease before its expiry, or before the end of its session. So an
            // unanswered transfer has succeeded if the lease has ended early.
            let may_be_handed_over = matches!(interrupted, Interrupted::Lost) && unanswered > 0;
            if may_be_handed_over && !self.has_expired().await {
                return Ok(self.handed_over_to(&to).await);
            }
            return Err(interrupted);
        }
    }

    async fn handed_over_to(&self, to: &Lessee) -> TaskEnd {
        info!(shard = %self.row.shard, %to, "shard handed over");
        self.entry.handed_over();
        // `guarded` would fail, because the lease has ended. So only the grace time limits this request.
        let look = async {
            if self.is_leaving(to).await {
                self.take_back_from(to).await;
            }
        };
        self.out_of_time.run_until_cancelled(look).await;
        TaskEnd::Given
    }

    async fn has_expired(&self) -> bool {
        let is_over = |cause| matches!(cause, LossCause::Expired | LossCause::SessionEnded);
        !self.lease.is_held() && is_over(self.lease.lost().await.cause)
    }

    /// Takes no longer than the grace time, except before a hand-over.
    pub(super) async fn write_before(
        &self,
        checkpointer: &Checkpointer,
        interrupted: Interrupted,
    ) -> Interrupted {
        let written = match &interrupted {
            Interrupted::Lost | Interrupted::OutOfTime => return interrupted,
            Interrupted::Ordered | Interrupted::NotStarted => {
                self.write_last_checkpoint(checkpointer).await
            }
            Interrupted::Restart(_) | Interrupted::GiveUp(_) | Interrupted::StopWorker(_) => {
                let written = self.write_last_checkpoint(checkpointer);
                timeout(self.settings.grace, written).await.unwrap_or(Ok(()))
            }
        };
        match written {
            // If a processor stops the worker, the worker stops even if the lease was lost during the write.
            Err(lost) if !matches!(interrupted, Interrupted::StopWorker(_)) => lost,
            _ => interrupted,
        }
    }

    /// If the worker decides when to checkpoint, this checkpoint covers all processed records. Otherwise, the
    /// pending checkpoint is written.
    pub(super) async fn write_last_checkpoint(
        &self,
        checkpointer: &Checkpointer,
    ) -> Result<(), Interrupted> {
        if let Checkpoints::Every(_) = self.settings.checkpoints {
            // The loop below retries a failed checkpoint.
            drop(self.guarded(None, checkpointer.checkpoint()).await?);
        }
        let mut failures = 0;
        while let Err(cause) = self.guarded(None, checkpointer.flush()).await? {
            failures += 1;
            let shard = &self.row.shard;
            warn!(%shard, error = &cause as &dyn Error, "last checkpoint failed, retrying");
            self.wait(self.settings.backoff(failures).min(LONGEST_PAUSE)).await?;
        }
        Ok(())
    }
}

/// A stream lists the children within seconds, and no worker reads the children until then.
const MAX_WAIT_FOR_CHILDREN: Duration = Duration::from_secs(5);
