//! Runs a [`RecordProcessor`] under a daemon that speaks the MultiLang protocol, such as Amazon's
//! `MultiLangDaemon`.
//!
//! Start with [`run`]. The daemon's properties name the program as `executableName`. The daemon starts one
//! process per shard. **Only messages of the protocol may appear on stdout.** Write logs to stderr.
//!
//! ```no_run
//! # use async_trait::async_trait;
//! use lease_kinesis::{Batch, Checkpointer, Outcome, RecordProcessor, ShardContext};
//! use lease_multilang::child;
//!
//! struct Payments;
//!
//! #[async_trait]
//! impl RecordProcessor for Payments {
//!     async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
//!         for record in &batch.records {
//!             eprintln!("{}", record.number);
//!         }
//!         checkpointer.checkpoint().await.into()
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), child::ChildError> {
//!     child::run(|_: &ShardContext| Payments).await?;
//!     Ok(())
//! }
//! ```
//!
//! A processor under a daemon differs from a processor of a [`Worker`](lease_kinesis::Worker):
//!
//! - [`ShardContext::token`](lease_kinesis::ShardContext::token) is `None`: the protocol has no fencing
//!   token. So no fence can refuse the late write of a processor that was paused for long.
//! - [`ShardContext::position`](lease_kinesis::ShardContext::position) is
//!   [`AtTimestamp(0)`](lease_kinesis::Position::AtTimestamp), which precedes every record, if the daemon
//!   sends no position or sends `AT_TIMESTAMP`, which has no time.
//! - The daemon reports the loss of the lease between batches, and never during a batch.
//!   [`ShardContext::cancellation`](lease_kinesis::ShardContext::cancellation) is cancelled at the report, or
//!   when the daemon closes the pipes.
//! - [`shard_ended`](lease_kinesis::RecordProcessor::shard_ended) may follow
//!   [`shutdown_requested`](lease_kinesis::RecordProcessor::shutdown_requested), if the daemon reaches the
//!   end of a shard that it hands over. `lease_lost` never follows `shutdown_requested`.
//! - A checkpoint that another task requests between two actions waits for the next action.
//! - The child cannot return a failed batch to the daemon. It retries the batch a
//!   [limited number of times](Child::with_max_attempts). After that, or if the processor wants to stop,
//!   [`OnStop`] decides.

mod backoff;
mod connection;
mod daemon_writer;
mod error;
mod session;
mod stdin;

use std::error::Error;
use std::time::Duration;

use lease_kinesis::extension::CheckpointScope;
use lease_kinesis::{Position, ProcessorFactory, RecordNumber, RecordProcessor, ShardContext};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::backoff::Backoff;
use self::connection::{CheckpointPolicy, Connection, DaemonPipe, out_of_turn};
use self::daemon_writer::DaemonWriter;
pub use self::error::ChildError;
use self::session::Session;
use crate::protocol::{
    Action, Generation, Initialize, InvalidMessage, LineReader, LineWriter, MAX_LINE_TO_CHILD,
    StartPosition, ToChild,
};

/// Runs a [`Child`] with default settings.
///
/// # Errors
///
/// As for [`Child::run`].
///
/// # Cancel safety
///
/// As for [`Child::run`].
pub async fn run(factory: impl ProcessorFactory) -> Result<Ended, ChildError> {
    Child::new(factory).run().await
}

/// Sets up the processor of one shard and runs it.
pub struct Child {
    factory: Box<dyn ProcessorFactory>,
    on_stop: OnStop,
    batches: Backoff,
    checkpoints: Backoff,
    max_line: usize,
}

/// The child's reaction to a batch that keeps failing, and to a processor that wants to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_enums, reason = "a child can only exit or skip the batch")]
pub enum OnStop {
    /// The child returns an error and sends nothing to the daemon. Amazon's daemon then exits, and the next
    /// daemon starts at the checkpoint. This is the default, because no record is skipped.
    #[default]
    Exit,
    /// The child logs the error and reports success: **the next checkpoint skips the batch**.
    Skip,
}

/// The reason why a child has ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The shard was read to its end.
    ShardEnd,
    /// Another worker has the shard.
    LeaseLost,
    /// The daemon closed the pipe, or ended, between two actions.
    InputEnded,
}

impl Child {
    /// Sets up a processor of `factory`, with default settings.
    pub fn new(factory: impl ProcessorFactory) -> Self {
        let (first, last) = (Duration::from_millis(500), Duration::from_mins(1));
        let batches = Backoff { first, last, max_attempts: 10 };
        // Five attempts in about half a minute, as in Amazon's samples.
        let checkpoints = Backoff { first: Duration::from_secs(2), last, max_attempts: 5 };
        Self {
            factory: Box::new(factory),
            on_stop: OnStop::default(),
            batches,
            checkpoints,
            max_line: MAX_LINE_TO_CHILD,
        }
    }

    /// Tries a shard's start, each batch, and the shard's end up to `max` times. Then [`OnStop`] decides.
    /// Defaults to 10 attempts, which take about three minutes. 0 counts as 1.
    #[must_use]
    pub fn with_max_attempts(mut self, max: u32) -> Self {
        self.batches.max_attempts = max.max(1);
        self
    }

    /// Waits for `first` after a failure. The pause doubles with each further failure, up to `last`. Defaults
    /// to 500 ms and a minute, as for a [`Worker`](lease_kinesis::Worker).
    #[must_use]
    pub fn with_backoff(mut self, first: Duration, last: Duration) -> Self {
        (self.batches.first, self.batches.last) = (first, last);
        self
    }

    /// Tries a checkpoint `max` times, with pauses of 2, 4, 8… seconds, while the daemon's table is not
    /// available. Defaults to 5. 0 counts as 1.
    #[must_use]
    pub fn with_max_checkpoint_attempts(mut self, max: u32) -> Self {
        self.checkpoints.max_attempts = max.max(1);
        self
    }

    /// Sets the reaction to a batch that keeps failing, and to a processor that wants to stop.
    #[must_use]
    pub fn on_stop(mut self, on_stop: OnStop) -> Self {
        self.on_stop = on_stop;
        self
    }

    /// Reads lines of at most `bytes`. Defaults to [64 MiB](MAX_LINE_TO_CHILD).
    #[must_use]
    pub fn with_max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }

    /// Processes the records that the daemon sends on stdin, until the daemon ends the shard. Call this once
    /// per process.
    ///
    /// # Errors
    ///
    /// If the daemon ends during an action or breaks the protocol, or if [`OnStop::Exit`] applies. After an
    /// error, exit with a code other than 0, so that the daemon sees a failure.
    ///
    /// # Cancel safety
    ///
    /// Not safe. After a dropped call, exit the process, because the daemon cannot continue with this child.
    ///
    /// # Panics
    ///
    /// If the processor panics.
    pub async fn run(self) -> Result<Ended, ChildError> {
        self.run_over(stdin::read()?, tokio::io::stdout()).await
    }

    /// Like [`run`](Self::run), but reads from `input` and writes to `output`.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// If the processor panics.
    pub async fn run_over<R, W>(self, input: R, output: W) -> Result<Ended, ChildError>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send,
    {
        let (sender, requests) = mpsc::channel(1);
        let lines = LineReader::new(input, self.max_line);
        let writer = LineWriter::for_child(output);
        let connection = Connection { lines, writer, generation: Generation::G2 };
        let mut pipe = DaemonPipe { connection, requests };
        let initialize = match pipe.connection.receive("a message").await? {
            Some(ToChild::Initialize(initialize)) => initialize,
            Some(message) => return Err(out_of_turn(&message, "before initialize")),
            None => return Ok(Ended::InputEnded),
        };
        if initialize.is_of_first_generation() {
            pipe.connection.generation = Generation::G0;
        }
        let context = context(&initialize)?;
        // Tasks of the processor end with this child.
        let _cancelled = context.cancellation.clone().drop_guard();
        let (generation, backoff) = (pipe.connection.generation, self.checkpoints);
        let writer = DaemonWriter { requests: sender, generation, backoff };
        let checkpointer = CheckpointScope::new(writer, context.position.clone());
        let processor = self.initialize(&mut pipe, &context).await?;
        pipe.connection.report_done(Action::Initialize).await?;
        Session { child: self, pipe, checkpointer, context, processor }.run().await
    }

    /// Retries with a new processor after a failure.
    async fn initialize<R, W>(
        &self,
        pipe: &mut DaemonPipe<R, W>,
        context: &ShardContext,
    ) -> Result<Box<dyn RecordProcessor>, ChildError>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send,
    {
        let mut failures = 0;
        loop {
            let mut processor = self.factory.processor(context);
            let initialized = processor.initialize(context);
            let initialized =
                pipe.during(Action::Initialize, CheckpointPolicy::Refuse, initialized).await?;
            let Err(cause) = initialized else { return Ok(processor) };
            failures += 1;
            let Some(pause) = self.batches.after(failures) else {
                return Err(ChildError::Initialize(cause));
            };
            warn!(failures, ?pause, error = &*cause as &dyn Error, "processor not initialized");
            pipe.during(Action::Initialize, CheckpointPolicy::Refuse, sleep(pause)).await?;
        }
    }
}

fn context(message: &Initialize) -> Result<ShardContext, ChildError> {
    let invalid = |error: &dyn Error| InvalidMessage::BadField {
        action: Action::Initialize.as_str(),
        reason: error.to_string(),
    };
    let shard = message.shard_id.parse().map_err(|error| invalid(&error))?;
    let start = message.start.clone().unwrap_or_default();
    let StartPosition { sequence_number, sub_sequence_number } = start;
    let position = match sequence_number.as_deref() {
        None | Some("AT_TIMESTAMP") => Position::AtTimestamp(0),
        Some("TRIM_HORIZON") => Position::TrimHorizon,
        Some("LATEST") => Position::Latest,
        Some("SHARD_END") => Position::ShardEnd,
        Some(digits) => {
            let sequence = digits.parse().map_err(|error| invalid(&error))?;
            let sub_sequence = sub_sequence_number.unwrap_or(0);
            Position::Record(RecordNumber { sequence, sub_sequence })
        }
    };
    Ok(ShardContext::new(shard, position, None, CancellationToken::new()))
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").field("on_stop", &self.on_stop).finish_non_exhaustive()
    }
}
