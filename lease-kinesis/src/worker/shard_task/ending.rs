//! How the reading of a shard ends in good order: at the shard's end, or where it is given away.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{Lessee, LossCause, Written};
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Broken, Ended, Order, ShardTask};
use crate::checkpoint::Checkpointer;
use crate::position::Position;
use crate::processor::{NeedsRestart, RecordProcessor};
use crate::settings::Checkpoints;
use crate::shard::Shard;

impl ShardTask {
    /// All of a closed shard was worked on: makes way for what it became.
    pub(super) async fn end_of_shard(
        &mut self,
        processor: &mut dyn RecordProcessor,
        checkpointer: &Checkpointer,
        children: Vec<Shard>,
    ) -> Result<Ended, Broken> {
        let mut failures = 0;
        let children = loop {
            let sync = Arc::clone(&self.sync);
            let made = sync.follow(self.lease.grant(), &self.row, children.clone());
            match self.guarded(None, made).await? {
                Ok(children) => break children,
                Err(cause) => {
                    failures += 1;
                    let pause = self.settings.backoff(failures).min(LONGEST_WAIT_FOR_CHILDREN);
                    let shard = &self.row.shard;
                    warn!(%shard, ?pause, error = &*cause, "rows of its children not made");
                    self.pause(pause).await?;
                }
            }
        };
        let before = checkpointer.reach();
        checkpointer.deliver_end();
        let mut failures = 0;
        loop {
            let limit = self.settings.batch_limit;
            let ended = self.guarded(limit, processor.shard_ended(checkpointer)).await?;
            if ended.is_ok() {
                // The processor is done: it is not called again for a store's failure.
                self.keep_what_is_owed(checkpointer).await?;
            }
            let checkpointed = self.guarded(None, checkpointer.checkpointed()).await?;
            if checkpointed == Position::ShardEnd {
                break;
            }
            failures += 1;
            let pause = self.settings.backoff(failures);
            let cause = ended.err().unwrap_or_else(|| "it did not checkpoint the end".into());
            let cause = match NeedsRestart::cause(cause) {
                Ok(cause) => return Err(Broken::Restart(cause)),
                Err(cause) => cause,
            };
            let shard = &self.row.shard;
            warn!(%shard, ?pause, error = &*cause as &dyn Error, "end of shard not checkpointed");
            if let Err(broken) = self.pause(pause).await {
                // Not agreed to: no last words of the processor are to checkpoint the end.
                self.guarded(None, checkpointer.take_back(before)).await?;
                return Err(broken);
            }
        }
        info!(shard = %self.row.shard, ?children, "shard read to its end");
        self.entry.ended();
        Ok(Ended::ShardEnd)
    }

    /// The last words of a processor whose shard is given away; then gives it away.
    pub(super) async fn shut_down(
        &mut self,
        processor: &mut dyn RecordProcessor,
        checkpointer: &Checkpointer,
    ) -> Result<Ended, Broken> {
        let words = processor.shutdown_requested(checkpointer);
        if let Err(cause) = self.guarded(self.settings.batch_limit, words).await? {
            let error = &*cause as &dyn Error;
            warn!(shard = %self.row.shard, error, "processor did not shut down in order");
        }
        // Whoever comes next begins at the checkpoint.
        self.keep_what_is_owed(checkpointer).await?;
        self.give_away(checkpointer).await
    }

    /// Gives the shard to whom it is ordered for.
    pub(super) async fn give_away(&mut self, checkpointer: &Checkpointer) -> Result<Ended, Broken> {
        checkpointer.close();
        if !self.lease.is_held() {
            return Err(Broken::Lost);
        }
        let mut unanswered = 0;
        loop {
            let Order::Give(Some(to)) = self.orders.borrow().clone() else {
                return Ok(Ended::Given);
            };
            if self.guarded(None, self.is_leaving(&to)).await? {
                info!(shard = %self.row.shard, %to, "released, since its next worker leaves");
                return Ok(Ended::Given);
            }
            unanswered += 1;
            let broken = match self.guarded(None, self.transfer(&to)).await {
                Ok(Ok(Written::Applied)) => return Ok(self.has_given_to(&to).await),
                Ok(Ok(Written::Lost(_) | Written::Unexpected)) => {
                    unanswered -= 1;
                    Broken::Lost
                }
                Ok(Err(cause)) => {
                    let shard = &self.row.shard;
                    warn!(%shard, %to, error = &cause as &dyn Error, "not handed over yet");
                    match self.wait(self.settings.backoff(unanswered)).await {
                        Ok(()) => continue,
                        Err(broken) => broken,
                    }
                }
                Err(broken) => broken,
            };
            // A try that was not answered may have come about. If the lease has ended, and not for
            // want of heartbeats, it has: else only an operator ends a lease before its time.
            let may_be_given = matches!(broken, Broken::Lost) && unanswered > 0;
            if may_be_given && !self.has_expired().await {
                return Ok(self.has_given_to(&to).await);
            }
            return Err(broken);
        }
    }

    async fn has_given_to(&self, to: &Lessee) -> Ended {
        info!(shard = %self.row.shard, %to, "handed over");
        self.entry.handed_over();
        // Not bound to the lease, which has ended: only to the time that is left.
        let look = async {
            if self.is_leaving(to).await {
                self.take_back_from(to).await;
            }
        };
        self.out_of_time.run_until_cancelled(look).await;
        Ended::Given
    }

    async fn has_expired(&self) -> bool {
        !self.lease.is_held() && self.lease.lost().await.cause == LossCause::Expired
    }

    /// Writes owed checkpoints before the shard is given up for the reason `broken`. Takes no longer
    /// than the grace time, unless the shard is only to be read elsewhere.
    pub(super) async fn keep_at_last(&self, checkpointer: &Checkpointer, broken: Broken) -> Broken {
        let kept = match &broken {
            Broken::Lost | Broken::OutOfTime => return broken,
            Broken::Ordered | Broken::Unbegun => self.keep_what_is_owed(checkpointer).await,
            Broken::Restart(_) | Broken::GiveUp(_) | Broken::StopWorker(_) => {
                let kept = self.keep_what_is_owed(checkpointer);
                timeout(self.settings.grace, kept).await.unwrap_or(Ok(()))
            }
        };
        match kept {
            // A processor that stops the worker does so also if its lease is lost meanwhile.
            Err(lost) if !matches!(broken, Broken::StopWorker(_)) => lost,
            _ => broken,
        }
    }

    /// Writes the last checkpoint: of all processed records, if the worker decides when checkpoints
    /// are made; otherwise the one that is owed.
    pub(super) async fn keep_what_is_owed(
        &self,
        checkpointer: &Checkpointer,
    ) -> Result<(), Broken> {
        if let Checkpoints::Every(_) = self.settings.checkpoints {
            // One that fails is repeated below.
            drop(self.guarded(None, checkpointer.checkpoint()).await?);
        }
        let mut failures = 0;
        while let Err(cause) = self.guarded(None, checkpointer.flush()).await? {
            failures += 1;
            let shard = &self.row.shard;
            warn!(%shard, error = &cause as &dyn Error, "last checkpoint not kept yet");
            self.wait(self.settings.backoff(failures)).await?;
        }
        Ok(())
    }
}

/// A stream lists what a shard became within seconds of its end; until then nobody reads on.
const LONGEST_WAIT_FOR_CHILDREN: Duration = Duration::from_secs(5);
