//! Executes the daemon's actions with an initialized processor.

use std::error::Error;
use std::time::Duration;

use lease_kinesis::extension::CheckpointScope;
use lease_kinesis::{
    Batch, Outcome, Position, ProcessorError, Record, RecordProcessor, ShardContext,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tracing::{error, warn};

use super::connection::{CheckpointPolicy, DaemonPipe, out_of_turn};
use super::error::ChildError;
use super::{Child, Ended, OnStop};
use crate::protocol::{Action, ProcessRecords, ShutdownReason, ToChild};

pub(super) struct Session<R, W> {
    pub(super) child: Child,
    pub(super) pipe: DaemonPipe<R, W>,
    pub(super) checkpointer: CheckpointScope,
    pub(super) context: ShardContext,
    pub(super) processor: Box<dyn RecordProcessor>,
}

enum Next {
    /// The batch is processed or skipped.
    Done,
    Retry(Duration),
}

impl<R, W> Session<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    pub(super) async fn run(mut self) -> Result<Ended, ChildError> {
        let mut shutdown_requested = false;
        loop {
            let Some(message) = self.pipe.connection.receive("a message").await? else {
                self.lease_lost(shutdown_requested, None).await?;
                return Ok(Ended::InputEnded);
            };
            match message {
                ToChild::ProcessRecords(records) => self.process(records).await?,
                ToChild::ShutdownRequested => {
                    shutdown_requested = true;
                    self.shut_down().await?;
                }
                ToChild::LeaseLost => {
                    return self.lease_lost(shutdown_requested, Some(Action::LeaseLost)).await;
                }
                ToChild::Shutdown(ShutdownReason::Zombie | ShutdownReason::LeaseLost) => {
                    return self.lease_lost(shutdown_requested, Some(Action::Shutdown)).await;
                }
                ToChild::ShardEnded => return self.shard_ended(Action::ShardEnded).await,
                ToChild::Shutdown(ShutdownReason::Terminate | ShutdownReason::ShardEnd) => {
                    return self.shard_ended(Action::Shutdown).await;
                }
                message @ ToChild::Initialize(_) => {
                    return Err(out_of_turn(&message, "a second time"));
                }
                message @ ToChild::Checkpoint(_) => {
                    return Err(out_of_turn(&message, "without a request"));
                }
            }
        }
    }

    /// After the last attempt, or if the processor wants to stop, [`OnStop`] decides.
    async fn process(&mut self, message: ProcessRecords) -> Result<(), ChildError> {
        let (action, policy) = (Action::ProcessRecords, CheckpointPolicy::Forward);
        let records = message.records.into_iter().map(Record::from).collect();
        let behind = message.millis_behind_latest.map(Duration::from_millis);
        let mut batch = Batch::new(records, behind);
        let before = self.checkpointer.delivered();
        let mut failures = 0;
        loop {
            if let Some(last) = batch.last() {
                self.checkpointer.deliver(last.clone());
            }
            let processing = self.processor.process_records(&batch, &self.checkpointer);
            let outcome = self.pipe.during(action, policy, processing).await?;
            if let Outcome::Continue = outcome {
                break;
            }
            // Only the rest of the batch is delivered again.
            let requested = self.checkpointer.take_back(before.clone()).await;
            let done = batch.drop_until(&requested);
            if done > 0 {
                failures = 0;
            }
            let is_done = done > 0 && batch.records.is_empty();
            let Next::Retry(pause) = self.next(outcome, &batch, is_done, &mut failures)? else {
                break;
            };
            batch.attempt += 1;
            self.pipe.during(action, policy, sleep(pause)).await?;
        }
        // Skipped records are not delivered again.
        if let Some(last) = batch.last() {
            self.checkpointer.deliver(last.clone());
        }
        self.pipe.connection.report_done(action).await
    }

    /// `outcome` is not `Continue`. `is_done` means that every record of the batch has a checkpoint.
    fn next(
        &self,
        outcome: Outcome,
        batch: &Batch,
        is_done: bool,
        failures: &mut u32,
    ) -> Result<Next, ChildError> {
        let shard = &self.context.shard;
        match outcome {
            Outcome::Continue => {}
            Outcome::Skip => {
                let (records, last) = (batch.records.len(), batch.last());
                warn!(%shard, records, ?last, "processor skipped a batch");
            }
            Outcome::Failed(source) if is_done => {
                let error = &*source as &dyn Error;
                warn!(%shard, error, "processor failed after it had checkpointed its batch");
            }
            Outcome::Failed(source) => {
                *failures += 1;
                if let Some(pause) = self.child.batches.after(*failures) {
                    let error = &*source as &dyn Error;
                    warn!(%shard, failures, ?pause, error, "batch failed, retrying");
                    return Ok(Next::Retry(pause));
                }
                self.stop(ChildError::Batch { attempts: *failures, source })?;
            }
            Outcome::StopShard(cause) | Outcome::StopWorker(cause) => {
                self.stop(ChildError::Stopped(cause))?;
            }
            Outcome::Retry(pause) => {
                return Ok(if is_done { Next::Done } else { Next::Retry(pause) });
            }
            unknown => {
                self.stop(ChildError::Stopped(format!("unknown outcome {unknown:?}").into()))?;
            }
        }
        Ok(Next::Done)
    }

    async fn shut_down(&mut self) -> Result<(), ChildError> {
        let action = Action::ShutdownRequested;
        let (processor, checkpointer) = (&mut self.processor, &self.checkpointer);
        let shutdown = async {
            processor.shutdown_requested(checkpointer).await?;
            // The next worker starts at the last stored checkpoint.
            checkpointer.flush().await.map_err(ProcessorError::from)
        };
        if let Err(cause) = self.pipe.during(action, CheckpointPolicy::Forward, shutdown).await? {
            let error = &*cause as &dyn Error;
            warn!(shard = %self.context.shard, error, "processor failed to shut down");
        }
        self.pipe.connection.report_done(action).await
    }

    /// `action` is the action to report as done. `None` if the daemon has closed the pipe.
    async fn lease_lost(
        &mut self,
        shutdown_requested: bool,
        action: Option<Action>,
    ) -> Result<Ended, ChildError> {
        self.context.cancellation.cancel();
        self.checkpointer.close();
        // After `shutdown_requested`, the processor has already ended its work.
        if !shutdown_requested {
            let lost = self.processor.lease_lost();
            match action {
                Some(action) => self.pipe.during(action, CheckpointPolicy::Refuse, lost).await?,
                None => lost.await,
            }
        }
        if let Some(action) = action {
            self.pipe.connection.report_done(action).await?;
            self.wait_until_closed().await?;
        }
        Ok(Ended::LeaseLost)
    }

    async fn shard_ended(&mut self, action: Action) -> Result<Ended, ChildError> {
        self.checkpointer.deliver_end();
        let (mut failures, mut is_notified) = (0, false);
        loop {
            let (processor, checkpointer) = (&mut self.processor, &self.checkpointer);
            let ending = async {
                if !is_notified {
                    processor.shard_ended(checkpointer).await?;
                    is_notified = true;
                }
                checkpointer.flush().await.map_err(ProcessorError::from)
            };
            let ended = self.pipe.during(action, CheckpointPolicy::Forward, ending).await?;
            if self.checkpointer.checkpointed().await == Position::ShardEnd {
                break;
            }
            failures += 1;
            // If the processor has requested the checkpoint of the end, only the request is repeated.
            is_notified &= ended.is_err();
            let cause =
                ended.err().unwrap_or_else(|| "the processor did not checkpoint the end".into());
            let Some(pause) = self.child.batches.after(failures) else {
                self.stop(ChildError::EndNotCheckpointed(cause))?;
                break;
            };
            let shard = &self.context.shard;
            // Converted inline: a `&dyn Error` held across an await makes the future not `Send`.
            warn!(%shard, failures, ?pause, error = &*cause as &dyn Error, "end of shard not checkpointed");
            self.pipe.during(action, CheckpointPolicy::Forward, sleep(pause)).await?;
        }
        self.checkpointer.close();
        self.pipe.connection.report_done(action).await?;
        self.wait_until_closed().await?;
        Ok(Ended::ShardEnd)
    }

    /// For [`OnStop::Skip`], only logs `cause`.
    fn stop(&self, cause: ChildError) -> Result<(), ChildError> {
        match self.child.on_stop {
            OnStop::Exit => Err(cause),
            OnStop::Skip => {
                let (shard, error) = (&self.context.shard, &cause as &dyn Error);
                error!(
                    %shard, error,
                    "failure ignored, the message of the daemon is reported as done"
                );
                Ok(())
            }
        }
    }

    /// The daemon closes the pipe after the child's last status.
    async fn wait_until_closed(&mut self) -> Result<(), ChildError> {
        match self.pipe.connection.receive("a message").await? {
            None => Ok(()),
            Some(message) => Err(out_of_turn(&message, "after the last status of the child")),
        }
    }
}
