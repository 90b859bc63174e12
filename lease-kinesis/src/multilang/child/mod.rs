//! A [`RecordProcessor`] of ours under a daemon that speaks the MultiLang protocol: Amazon's
//! `MultiLangDaemon` of any version, or another.
//!
//! The program is named as `executableName` in the daemon's properties. One process is started for
//! each shard. **Its stdout belongs to the protocol**: logs go to stderr
//! (`tracing_subscriber::fmt().with_writer(std::io::stderr)`), and nothing may be printed.
//!
//! What differs from a [`Worker`](crate::Worker), which does the reading itself:
//!
//! - [`ShardContext::token`] is `None`: the protocol has no fencing token. A processor that is paused
//!   for long may write beside its successor, and nothing can refuse it.
//! - [`ShardContext::position`] is [`AtTimestamp(0)`](Position::AtTimestamp), which no record comes
//!   before, where the daemon does not tell: in the first generation, and of `AT_TIMESTAMP`.
//! - The loss of the lease is told between batches, not in the middle of one.
//!   [`ShardContext::cancellation`] is cancelled then, and where the daemon is gone.
//! - [`shard_ended`](RecordProcessor::shard_ended) may come after
//!   [`shutdown_requested`](RecordProcessor::shutdown_requested): such a shard is read to its end and
//!   given away at once. `lease_lost`, which ends each hand-over here, is not told after it.
//! - A checkpoint that is asked for from another task between two actions waits for the next one.
//! - A batch cannot be given back. It is tried again here, for [so often](Child::with_attempts); then,
//!   as where the processor wants to stop, [`OnStop`] decides.

mod error;
mod keeper;
mod pipe;
mod stdin;

use std::error::Error;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

pub use self::error::ChildError;
use self::keeper::{Backoff, ByPipe};
use self::pipe::{Checkpoints, Pipe, Talk, out_of_turn};
use super::{
    Action, Generation, Initialize, LONGEST_TO_CHILD, LineReader, LineWriter, NotAMessage,
    ProcessRecords, ShutdownReason, Start, ToChild,
};
use crate::checkpoint::{Ledger, Term};
use crate::position::{Position, RecordNumber};
use crate::processor::{Outcome, ProcessorError, ProcessorFactory, RecordProcessor, ShardContext};
use crate::record::{Batch, Record};

/// Works on what the daemon says on stdin, until it says that it is over: see [`Child::run`].
///
/// # Errors
///
/// As [`Child::run`].
pub async fn run(factory: impl ProcessorFactory) -> Result<Ended, ChildError> {
    Child::new(factory).run().await
}

/// A processor for one shard, and how it is to be run.
pub struct Child {
    factory: Box<dyn ProcessorFactory>,
    on_stop: OnStop,
    batches: Backoff,
    checkpoints: Backoff,
    limit: usize,
}

/// What becomes of a batch that cannot be worked on, or of a processor that wants to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_enums, reason = "it is passed, or it is not")]
pub enum OnStop {
    /// The child ends with an error, and says nothing to the daemon. Amazon's then ends too, with all
    /// of its shards; whoever begins again begins at the checkpoint. The default, since nothing is
    /// skipped.
    #[default]
    Exit,
    /// It is told in the log, and the daemon is told that it is done: **the batch is skipped** by the
    /// next checkpoint of a later one. As processors in other languages do.
    Pass,
}

/// How it came that a child has nothing more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The shard was read to its end.
    ShardEnd,
    /// The shard is another's.
    LeaseLost,
    /// The daemon has closed the pipe, or has died, between two actions.
    InputEnded,
}

impl Child {
    /// A processor of `factory`, with the defaults of each setting.
    pub fn new(factory: impl ProcessorFactory) -> Self {
        let (first, last) = (Duration::from_millis(500), Duration::from_mins(1));
        let batches = Backoff { first, last, most_attempts: 10 };
        // As in Amazon's samples: five times, for up to half a minute.
        let checkpoints = Backoff { first: Duration::from_secs(2), last, most_attempts: 5 };
        let (factory, limit) = (Box::new(factory), LONGEST_TO_CHILD);
        Self { factory, on_stop: OnStop::default(), batches, checkpoints, limit }
    }

    /// How often a batch, a beginning or an end is tried before [`OnStop`] decides; 10 by default,
    /// which takes about three minutes. 0 is taken for 1.
    #[must_use]
    pub fn with_attempts(mut self, most: u32) -> Self {
        self.batches.most_attempts = most.max(1);
        self
    }

    /// How long it is waited after the first failure, and at most: doubled each time. Half a second
    /// and a minute by default, as for a [`Worker`](crate::Worker).
    #[must_use]
    pub fn with_backoff(mut self, first: Duration, last: Duration) -> Self {
        (self.batches.first, self.batches.last) = (first, last);
        self
    }

    /// How often a checkpoint is tried that the daemon's table is too busy for, with pauses of 2, 4,
    /// 8… seconds; 5 by default. 0 is taken for 1.
    #[must_use]
    pub fn with_checkpoint_attempts(mut self, most: u32) -> Self {
        self.checkpoints.most_attempts = most.max(1);
        self
    }

    /// What becomes of a batch that failed too often, and of a processor that wants to stop.
    #[must_use]
    pub fn on_stop(mut self, on_stop: OnStop) -> Self {
        self.on_stop = on_stop;
        self
    }

    /// The longest line that is read, in bytes; [64 MiB](LONGEST_TO_CHILD) by default.
    #[must_use]
    pub fn with_longest_line(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Works on what the daemon says on stdin, until it says that it is over.
    ///
    /// Reads stdin on a thread of its own, so that a program that ends with an error does not wait
    /// for what the daemon says next: it would wait for ever. To be called once in a process.
    ///
    /// # Errors
    ///
    /// Where the daemon is gone in the middle of something, breaks the protocol, or [`OnStop::Exit`]
    /// has it so. Exit with another code than 0 then: nothing was said to the daemon, which takes the
    /// end of the process for the failure that it is.
    ///
    /// # Panics
    ///
    /// Where the processor does.
    pub async fn run(self) -> Result<Ended, ChildError> {
        self.run_over(stdin::read()?, tokio::io::stdout()).await
    }

    /// The same, over other pipes than stdin and stdout.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// Where the processor does.
    pub async fn run_over<R, W>(self, input: R, output: W) -> Result<Ended, ChildError>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send,
    {
        let (sender, requests) = mpsc::channel(1);
        let lines = LineReader::new(input, self.limit);
        let writer = LineWriter::of_child(output);
        let talk = Talk { lines, writer, generation: Generation::G2 };
        let mut pipe = Pipe { talk, requests };
        let initialize = match pipe.talk.hear("the beginning").await? {
            Some(ToChild::Initialize(initialize)) => initialize,
            Some(said) => return Err(out_of_turn(&said, "before initialize")),
            None => return Ok(Ended::InputEnded),
        };
        if initialize.is_of_first_generation() {
            pipe.talk.generation = Generation::G0;
        }
        let context = context(&initialize)?;
        // Whatever was started elsewhere is to end with this child, however that ends.
        let _cancelled = context.cancellation.clone().drop_guard();
        let (generation, backoff) = (pipe.talk.generation, self.checkpoints);
        let keeper = ByPipe { requests: sender, generation, backoff };
        let checkpointer = Ledger::kept_by(Box::new(keeper), context.position.clone()).term();
        let processor = self.begin(&mut pipe, &context).await?;
        pipe.talk.done(Action::Initialize).await?;
        Session { child: self, pipe, checkpointer, context, processor }.run().await
    }

    async fn begin<R, W>(
        &self,
        pipe: &mut Pipe<R, W>,
        context: &ShardContext,
    ) -> Result<Box<dyn RecordProcessor>, ChildError>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send,
    {
        let mut failures = 0;
        loop {
            let mut processor = self.factory.processor(context);
            let begun = processor.initialize(context);
            let begun = pipe.during(Action::Initialize, Checkpoints::Refused, begun).await?;
            let Err(cause) = begun else { return Ok(processor) };
            failures += 1;
            let Some(pause) = self.batches.after(failures) else {
                return Err(ChildError::Initialize(cause));
            };
            warn!(failures, ?pause, error = &*cause as &dyn Error, "processor could not begin");
            pipe.during(Action::Initialize, Checkpoints::Refused, sleep(pause)).await?;
        }
    }
}

/// A processor that has begun.
struct Session<R, W> {
    child: Child,
    pipe: Pipe<R, W>,
    checkpointer: Term,
    context: ShardContext,
    processor: Box<dyn RecordProcessor>,
}

impl<R, W> Session<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    async fn run(mut self) -> Result<Ended, ChildError> {
        let mut asked_to_stop = false;
        loop {
            let Some(said) = self.pipe.talk.hear("a line").await? else {
                self.lease_lost(asked_to_stop, None).await?;
                return Ok(Ended::InputEnded);
            };
            match said {
                ToChild::ProcessRecords(told) => self.work(told).await?,
                ToChild::ShutdownRequested => {
                    asked_to_stop = true;
                    self.shut_down().await?;
                }
                ToChild::LeaseLost => {
                    return self.lease_lost(asked_to_stop, Some(Action::LeaseLost)).await;
                }
                ToChild::Shutdown(ShutdownReason::Zombie | ShutdownReason::LeaseLost) => {
                    return self.lease_lost(asked_to_stop, Some(Action::Shutdown)).await;
                }
                ToChild::ShardEnded => return self.shard_ended(Action::ShardEnded).await,
                ToChild::Shutdown(ShutdownReason::Terminate | ShutdownReason::ShardEnd) => {
                    return self.shard_ended(Action::Shutdown).await;
                }
                said @ (ToChild::Initialize(_) | ToChild::Checkpoint(_)) => {
                    return Err(out_of_turn(&said, "when nobody had asked for it"));
                }
            }
        }
    }

    /// Has records worked on, until the processor wants to go on.
    async fn work(&mut self, told: ProcessRecords) -> Result<(), ChildError> {
        let (action, checkpoints) = (Action::ProcessRecords, Checkpoints::Asked);
        let records = told.records.into_iter().map(Record::from).collect();
        let mut batch = Batch::new(records, told.millis_behind_latest.map(Duration::from_millis));
        let before = self.checkpointer.reach();
        let mut failures = 0;
        loop {
            if let Some(last) = batch.last() {
                self.checkpointer.deliver(last.clone());
            }
            let work = self.processor.process_records(&batch, &self.checkpointer);
            let outcome = self.pipe.during(action, checkpoints, work).await?;
            if let Outcome::Continue = outcome {
                break;
            }
            // What the processor asked to checkpoint is processed. Only the rest is delivered again.
            let asked = self.checkpointer.take_back(before.clone()).await;
            let done = batch.drop_until(&asked);
            if done > 0 {
                failures = 0;
            }
            let is_done = done > 0 && batch.records.is_empty();
            let shard = &self.context.shard;
            let pause = match outcome {
                Outcome::Skip => {
                    let (records, last) = (batch.records.len(), batch.last());
                    warn!(%shard, records, ?last, "processor skipped a batch");
                    break;
                }
                Outcome::Failed(source) if is_done => {
                    let error = &*source as &dyn Error;
                    warn!(%shard, error, "processor failed after it had checkpointed its batch");
                    break;
                }
                Outcome::Failed(source) => {
                    failures += 1;
                    let Some(pause) = self.child.batches.after(failures) else {
                        let failed = ChildError::Batch { attempts: failures, source };
                        self.stop(failed)?;
                        break;
                    };
                    let error = &*source as &dyn Error;
                    warn!(%shard, failures, ?pause, error, "batch failed, trying again");
                    pause
                }
                Outcome::StopShard(cause) | Outcome::StopWorker(cause) => {
                    self.stop(ChildError::Stopped(cause))?;
                    break;
                }
                Outcome::Retry(_) | Outcome::Continue if is_done => break,
                Outcome::Retry(pause) => pause,
                Outcome::Continue => break,
            };
            batch.attempt += 1;
            self.pipe.during(action, checkpoints, sleep(pause)).await?;
        }
        // What was skipped or passed over is not delivered again.
        if let Some(last) = batch.last() {
            self.checkpointer.deliver(last.clone());
        }
        self.pipe.talk.done(action).await
    }

    async fn shut_down(&mut self) -> Result<(), ChildError> {
        let action = Action::ShutdownRequested;
        let (processor, checkpointer) = (&mut self.processor, &self.checkpointer);
        let words = async {
            processor.shutdown_requested(checkpointer).await?;
            // Whoever comes next begins at the checkpoint: one that was wanted and did not come
            // about is made first.
            checkpointer.flush().await.map_err(ProcessorError::from)
        };
        if let Err(cause) = self.pipe.during(action, Checkpoints::Asked, words).await? {
            let error = &*cause as &dyn Error;
            warn!(shard = %self.context.shard, error, "processor did not shut down in order");
        }
        self.pipe.talk.done(action).await
    }

    /// The shard is another's; `said` is by which word, where anybody waits for the status.
    async fn lease_lost(
        &mut self,
        asked_to_stop: bool,
        said: Option<Action>,
    ) -> Result<Ended, ChildError> {
        self.context.cancellation.cancel();
        self.checkpointer.close();
        // One that was asked to stop has said its last words.
        if !asked_to_stop {
            let words = self.processor.lease_lost();
            match said {
                Some(action) => self.pipe.during(action, Checkpoints::Refused, words).await?,
                None => words.await,
            }
        }
        if let Some(action) = said {
            self.pipe.talk.done(action).await?;
            self.until_closed().await?;
        }
        Ok(Ended::LeaseLost)
    }

    /// All of a closed shard was worked on: its end is to be checkpointed.
    async fn shard_ended(&mut self, said: Action) -> Result<Ended, ChildError> {
        self.checkpointer.deliver_end();
        let (mut failures, mut is_told) = (0, false);
        loop {
            let (processor, checkpointer) = (&mut self.processor, &self.checkpointer);
            let words = async {
                if !is_told {
                    processor.shard_ended(checkpointer).await?;
                    is_told = true;
                }
                checkpointer.flush().await.map_err(ProcessorError::from)
            };
            let ended = self.pipe.during(said, Checkpoints::Asked, words).await?;
            if self.checkpointer.checkpointed().await == Position::ShardEnd {
                break;
            }
            failures += 1;
            // It has said all that it has to say, and is not told again for a store's failure: only
            // where it has not asked for the end.
            is_told &= ended.is_err();
            let cause = ended.err().unwrap_or_else(|| "it did not checkpoint the end".into());
            let Some(pause) = self.child.batches.after(failures) else {
                self.stop(ChildError::EndNotCheckpointed(cause))?;
                break;
            };
            let shard = &self.context.shard;
            warn!(%shard, failures, ?pause, error = &*cause as &dyn Error, "end of shard not checkpointed");
            self.pipe.during(said, Checkpoints::Asked, sleep(pause)).await?;
        }
        self.checkpointer.close();
        self.pipe.talk.done(said).await?;
        self.until_closed().await?;
        Ok(Ended::ShardEnd)
    }

    /// Ends the child with `why`, or tells it in the log.
    fn stop(&self, why: ChildError) -> Result<(), ChildError> {
        match self.child.on_stop {
            OnStop::Exit => Err(why),
            OnStop::Pass => {
                let (shard, error) = (&self.context.shard, &why as &dyn Error);
                error!(%shard, error, "passed over, and told to the daemon as done");
                Ok(())
            }
        }
    }

    /// The daemon closes the pipe once it has heard the last status.
    async fn until_closed(&mut self) -> Result<(), ChildError> {
        match self.pipe.talk.hear("the end").await? {
            None => Ok(()),
            Some(said) => Err(out_of_turn(&said, "after the end")),
        }
    }
}

fn context(said: &Initialize) -> Result<ShardContext, ChildError> {
    let refused = |error: &dyn Error| NotAMessage::BadField {
        action: Action::Initialize.as_str(),
        reason: error.to_string(),
    };
    let shard = said.shard_id.parse().map_err(|error| refused(&error))?;
    let start = said.start.clone().unwrap_or_default();
    let Start { sequence_number, sub_sequence_number } = start;
    let position = match sequence_number.as_deref() {
        None | Some("AT_TIMESTAMP") => Position::AtTimestamp(0),
        Some("TRIM_HORIZON") => Position::TrimHorizon,
        Some("LATEST") => Position::Latest,
        Some("SHARD_END") => Position::ShardEnd,
        Some(digits) => {
            let sequence = digits.parse().map_err(|error| refused(&error))?;
            let sub_sequence = sub_sequence_number.unwrap_or(0);
            Position::Record(RecordNumber { sequence, sub_sequence })
        }
    };
    Ok(ShardContext { shard, position, token: None, cancellation: CancellationToken::new() })
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").field("on_stop", &self.on_stop).finish_non_exhaustive()
    }
}
