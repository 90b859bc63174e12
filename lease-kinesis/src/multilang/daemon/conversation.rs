//! What a child is told, and what it says: one thing at a time, from its start to its end.

use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::process::{ChildStdin, ChildStdout};
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::children::{Children, Settings};
use super::failure::ChildFailure;
use super::noise::Noise;
use super::process::{Pipes, Process};
use super::stderr::drain;
use crate::checkpoint::Checkpointer;
use crate::multilang::{
    Action, Asked, ErrorName, FromChild, LONGEST_FROM_CHILD, Line, LineReader, LineWriter, Reply,
    ToChild,
};
use crate::position::{Position, RecordNumber};
use crate::shard::ShardId;
use crate::time::now;

/// Owns a child, and both of its pipes.
pub(super) struct Conversation {
    shard: ShardId,
    settings: Settings,
    process: Process,
    /// `None` once it was closed: the child then reads the end.
    stdin: Option<LineWriter<ChildStdin>>,
    stdout: LineReader<ChildStdout>,
    noise: Noise,
    /// Of what the child was told last.
    checkpointer: Option<Checkpointer>,
    /// The last record that the child was given.
    delivered: Option<RecordNumber>,
    at_the_end: bool,
    /// Whether the child is to be told that its lease is lost, before it is left alone.
    owes_the_end: bool,
    abandoned: CancellationToken,
    failed: CancellationToken,
}

/// What a child is to be told, and whom to tell that it is done.
pub(super) struct Request {
    pub(super) message: ToChild,
    /// For the checkpoints that the child asks for meanwhile.
    pub(super) checkpointer: Option<Checkpointer>,
    pub(super) limit: Option<Duration>,
    pub(super) done: oneshot::Sender<Result<(), ChildFailure>>,
}

impl Conversation {
    /// Starts a child. What comes with it reads its stderr.
    pub(super) fn begin(
        children: &Children,
        shard: &ShardId,
        abandoned: CancellationToken,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), ChildFailure> {
        let settings = children.settings.clone();
        let started = Process::start(&settings.command);
        let (process, Pipes { stdin, stdout, stderr }) = started.map_err(|source| {
            children.failed.cancel();
            ChildFailure::NotStarted { command: settings.command.to_string(), source }
        })?;
        info!(%shard, pid = process.id(), "child started");
        let conversation = Self {
            shard: shard.clone(),
            settings,
            process,
            stdin: Some(LineWriter::of_daemon(stdin)),
            stdout: LineReader::new(stdout, LONGEST_FROM_CHILD),
            noise: Noise::new(shard.clone()),
            checkpointer: None,
            delivered: None,
            at_the_end: false,
            owes_the_end: false,
            abandoned,
            failed: children.failed.clone(),
        };
        Ok((conversation, drain(stderr, shard.clone())))
    }

    /// Goes on until nobody can ask for anything any more, and the child has ended.
    pub(super) async fn run(
        mut self,
        mut requests: mpsc::Receiver<Request>,
        stderr: JoinHandle<()>,
    ) {
        loop {
            select! {
                // What is to be done first: while a child is told nothing, it says nothing.
                biased;
                request = requests.recv() => {
                    let Some(Request { message, checkpointer, limit, done }) = request else {
                        break self.take_leave().await;
                    };
                    self.checkpointer = checkpointer;
                    let performed = self.perform(&message, limit).await;
                    let has_failed = performed.is_err();
                    let performed = match performed {
                        Ok(()) => Ok(()),
                        Err(failure) => Err(self.fail(failure, message.action()).await),
                    };
                    // Whoever asked may not want to know any more.
                    drop(done.send(performed));
                    if has_failed {
                        break;
                    }
                }
                said = hear_or_end(&mut self.stdout, &mut self.noise, &mut self.process) => {
                    if let Err(failure) = self.hear_unasked(said).await {
                        let failure = self.fail(failure, None).await;
                        if let Some(request) = requests.recv().await {
                            drop(request.done.send(Err(failure)));
                        }
                        break;
                    }
                }
            }
        }
        let reader = stderr.abort_handle();
        // What the child has started may have it open still.
        if timeout(LAST_WORDS, stderr).await.is_err() {
            reader.abort();
        }
        debug!(shard = %self.shard, "child is gone");
    }

    /// Tells the child `message`, and waits until it says that it is done. `limit` begins anew with
    /// each checkpoint.
    async fn perform(
        &mut self,
        message: &ToChild,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        let Some(action) = message.action() else { return Ok(()) };
        self.note(message);
        let (abandoned, farewell) = (self.abandoned.clone(), self.settings.farewell);
        let mut is_abandoned = pin!(async move {
            abandoned.cancelled().await;
            sleep(farewell).await;
        });
        let too_slow = |limit: Option<Duration>| {
            Err(ChildFailure::TooSlow { action, limit: limit.unwrap_or(farewell) })
        };
        let mut deadline = limit.map(|limit| now() + limit);
        let mut early = VecDeque::new();
        {
            let text = message.encode(self.noise.generation);
            let Some(stdin) = &mut self.stdin else { return Err(ChildFailure::Before) };
            let mut write = pin!(stdin.write(&text));
            loop {
                select! {
                    biased;
                    () = until(deadline) => return too_slow(limit),
                    () = &mut is_abandoned => return too_slow(None),
                    written = &mut write => break written.map_err(ChildFailure::Pipe)?,
                    // A child that writes before it reads would wait for us, and we for it.
                    said = hear_or_end(&mut self.stdout, &mut self.noise, &mut self.process),
                        if early.len() < MOST_EARLY => early.push_back(said?),
                }
            }
        }
        loop {
            let heard = async {
                match early.pop_front() {
                    Some(said) => Ok(said),
                    None => hear_or_end(&mut self.stdout, &mut self.noise, &mut self.process).await,
                }
            };
            let said = select! {
                biased;
                () = until(deadline) => return too_slow(limit),
                () = &mut is_abandoned => return too_slow(None),
                said = heard => said?,
            };
            match said {
                FromChild::Status { response_for }
                    if is_answer(response_for.as_deref(), action) =>
                {
                    return Ok(());
                }
                FromChild::Status { response_for: answered } => {
                    return Err(ChildFailure::WrongAnswer { action, answered });
                }
                FromChild::Checkpoint(asked) => {
                    select! {
                        biased;
                        () = &mut is_abandoned => return too_slow(None),
                        replied = self.checkpoint(asked) => replied?,
                    }
                    deadline = limit.map(|limit| now() + limit);
                }
            }
        }
    }

    /// What is to be known later of what the child is told now.
    fn note(&mut self, message: &ToChild) {
        match message {
            ToChild::ProcessRecords(told) => {
                let last = told.records.last().map(|record| RecordNumber {
                    sequence: record.sequence_number.clone(),
                    sub_sequence: record.sub_sequence_number.unwrap_or(0),
                });
                self.delivered = last.or_else(|| self.delivered.take());
            }
            ToChild::ShardEnded => (self.at_the_end, self.owes_the_end) = (true, false),
            ToChild::LeaseLost | ToChild::Shutdown(_) => self.owes_the_end = false,
            ToChild::Initialize(_) => self.owes_the_end = true,
            ToChild::ShutdownRequested | ToChild::Checkpoint(_) => (),
        }
    }

    /// A child may ask for a checkpoint after it has said that it is done, as some do.
    async fn hear_unasked(
        &mut self,
        said: Result<FromChild, ChildFailure>,
    ) -> Result<(), ChildFailure> {
        match said? {
            FromChild::Checkpoint(asked) => self.checkpoint(asked).await,
            FromChild::Status { response_for } => {
                warn!(shard = %self.shard, ?response_for, "child answered what nobody had asked");
                Ok(())
            }
        }
    }

    async fn checkpoint(&mut self, asked: Asked) -> Result<(), ChildFailure> {
        let error = self.keep(&asked).await.err();
        if let Some(name) = &error {
            warn!(shard = %self.shard, ?asked, error = %name, "checkpoint of a child not kept");
        }
        let reply = ToChild::Checkpoint(Reply { asked, error });
        let Some(stdin) = &mut self.stdin else { return Err(ChildFailure::Before) };
        let reply = reply.encode(self.noise.generation);
        stdin.write(&reply).await.map_err(ChildFailure::Pipe)
    }

    async fn keep(&self, asked: &Asked) -> Result<(), ErrorName> {
        let checkpointer = self.checkpointer.as_ref().ok_or(ErrorName::InvalidState)?;
        let kept = match &asked.sequence_number {
            None => checkpointer.checkpoint().await,
            Some(text) => {
                let sequence = text.parse().map_err(|_no_number| ErrorName::IllegalArgument)?;
                let sub_sequence = asked.sub_sequence_number.unwrap_or(0);
                let sub_sequence =
                    u64::try_from(sub_sequence).map_err(|_negative| ErrorName::IllegalArgument)?;
                let record = RecordNumber { sequence, sub_sequence };
                if self.at_the_end && self.is_last(&record, asked, checkpointer).await {
                    checkpointer.checkpoint().await
                } else {
                    checkpointer.checkpoint_at(&record).await
                }
            }
        };
        kept.map_err(|error| {
            debug!(shard = %self.shard, error = &error as &dyn Error, "checkpoint not kept");
            ErrorName::from(&error)
        })
    }

    /// Whether this is the last record of the shard: whoever checkpoints that at the end, means the
    /// end. Not all clients tell the place within an aggregate.
    async fn is_last(
        &self,
        record: &RecordNumber,
        asked: &Asked,
        checkpointer: &Checkpointer,
    ) -> bool {
        let is = |last: &RecordNumber| {
            let tells_no_place = asked.sub_sequence_number.is_none();
            record == last || tells_no_place && record.sequence == last.sequence
        };
        match (&self.delivered, checkpointer.checkpointed().await) {
            (Some(last), _) => is(last),
            (None, Position::Record(last)) => is(&last),
            (None, _) => false,
        }
    }

    /// Ends a child that is of no use any more.
    async fn fail(&mut self, failure: ChildFailure, action: Option<Action>) -> ChildFailure {
        let has_ended = match &failure {
            ChildFailure::Ended(_) => true,
            ChildFailure::Pipe(error) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        };
        let failure = if has_ended {
            ChildFailure::Ended(self.process.end(LAST_WORDS).await)
        } else {
            failure
        };
        let shard = &self.shard;
        warn!(%shard, ?action, error = &failure as &dyn Error, "child failed, it is killed");
        self.process.kill().await;
        // Of one that was to end, nobody expects anything any more.
        let was_to_end = matches!(action, Some(Action::ShutdownRequested | Action::LeaseLost));
        if !was_to_end && !self.abandoned.is_cancelled() {
            self.failed.cancel();
        }
        failure
    }

    /// Tells the child that its lease is lost, if it was told of no other end; then waits for its.
    async fn take_leave(&mut self) {
        if self.owes_the_end {
            self.checkpointer = None;
            let farewell = Some(self.settings.farewell);
            if let Err(failure) = self.perform(&ToChild::LeaseLost, farewell).await {
                self.fail(failure, Some(Action::LeaseLost)).await;
                return;
            }
        }
        // The child reads the end.
        drop(self.stdin.take());
        let farewell = self.settings.farewell;
        let ended = async {
            // It may have more to say than the pipe has room for.
            while hear_or_end(&mut self.stdout, &mut self.noise, &mut self.process).await.is_ok() {}
            self.process.end(farewell).await
        };
        let shard = &self.shard;
        if let Ok(Some(status)) = timeout(farewell, ended).await {
            info!(%shard, %status, "child ended");
        } else {
            warn!(%shard, limit = ?farewell, "child did not end, it is killed");
            self.process.kill().await;
        }
    }
}

/// The next message, past whatever else there is.
async fn hear(
    stdout: &mut LineReader<ChildStdout>,
    noise: &mut Noise,
) -> Result<FromChild, ChildFailure> {
    loop {
        let line = stdout.next().await.map_err(ChildFailure::Pipe)?;
        if line == Line::End {
            return Err(ChildFailure::Ended(None));
        }
        if let Some(message) = noise.message(&line) {
            return Ok(message);
        }
    }
}

/// The next message, or how the child has ended.
async fn hear_or_end(
    stdout: &mut LineReader<ChildStdout>,
    noise: &mut Noise,
    process: &mut Process,
) -> Result<FromChild, ChildFailure> {
    select! {
        // The end after what it has said. What it has started may keep its stdout open.
        biased;
        said = hear(stdout, noise) => said,
        status = process.ended() => Err(ChildFailure::Ended(status)),
    }
}

/// Old children call every end a shutdown.
fn is_answer(answered: Option<&str>, action: Action) -> bool {
    let is_end =
        matches!(action, Action::LeaseLost | Action::ShardEnded | Action::ShutdownRequested);
    answered == Some(action.as_str()) || is_end && answered == Some(Action::Shutdown.as_str())
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// What a child may say before it has read what it is told.
const MOST_EARLY: usize = 64;

/// For what is left to be done when a child has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
