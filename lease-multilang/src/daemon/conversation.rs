//! The task that exchanges messages with one child, one action at a time.

use std::error::Error;
use std::future::Future;
use std::io;
use std::time::Duration;

use lease_kinesis::extension::{LogLevel, LogThrottle};
use lease_kinesis::{Checkpointer, ShardId};
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::checkpoints::ChildCheckpoints;
use super::end_message::EndMessage;
use super::failure::ChildFailure;
use super::pipe::Pipe;
use super::shared::Shared;
use super::stderr::drain;
use crate::protocol::{Action, FromChild, Generation, ToChild};

/// Dropping the conversation kills the child.
pub(super) struct Conversation {
    shard: ShardId,
    shared: Shared,
    pipe: Pipe,
    checkpoints: ChildCheckpoints,
    /// Throttles the warnings about statuses that answer no action.
    unasked: LogThrottle,
    /// Whether the child must still get a message that its lease is lost.
    owes_lease_lost: bool,
    /// The last end message, until the child has answered or failed.
    end_message: Option<EndMessage>,
    /// Whether the child may have failed only because its end message was unknown.
    end_message_changed: bool,
    abandoned: CancellationToken,
}

pub(super) struct Request {
    pub(super) message: ToChild,
    pub(super) checkpointer: Option<Checkpointer>,
    pub(super) done: oneshot::Sender<Result<(), ChildFailure>>,
}

impl Conversation {
    /// The returned future reads the child's stderr.
    pub(super) fn start(
        shared: &Shared,
        shard: &ShardId,
        abandoned: CancellationToken,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), ChildFailure> {
        let shared = shared.clone();
        let command = &shared.settings.command;
        let (pipe, stderr) = Pipe::start(shard, command).map_err(|source| {
            shared.failed.cancel();
            ChildFailure::NotStarted { command: command.to_string(), source }
        })?;
        info!(%shard, pid = pipe.child(), "child started");
        let conversation = Self {
            shard: shard.clone(),
            shared,
            pipe,
            checkpoints: ChildCheckpoints::new(shard.clone()),
            unasked: LogThrottle::default(),
            owes_lease_lost: false,
            end_message: None,
            end_message_changed: false,
            abandoned,
        };
        Ok((conversation, drain(stderr, shard.clone())))
    }

    /// Runs until the sender of `requests` is dropped and the child has ended, or the child fails.
    pub(super) async fn run(
        mut self,
        mut requests: mpsc::Receiver<Request>,
        stderr: JoinHandle<()>,
    ) {
        loop {
            select! {
                // A child that sends many messages must not delay requests.
                biased;
                request = requests.recv() => {
                    let Some(Request { message, checkpointer, done }) = request else {
                        break self.end_child().await;
                    };
                    let performed = self.perform(&message, checkpointer).await;
                    let has_failed = performed.is_err();
                    let performed = match performed {
                        Ok(()) => Ok(()),
                        Err(failure) => Err(self.fail(failure, message.action()).await),
                    };
                    // The processor may have dropped its call.
                    drop(done.send(performed));
                    if has_failed {
                        break;
                    }
                }
                message = self.pipe.receive() => {
                    if let Err(failure) = self.answer_between_actions(message).await {
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
        // A process that the child started may still hold the pipe open.
        if timeout(CLEANUP, stderr).await.is_err() {
            reader.abort();
        }
        debug!(shard = %self.shard, "conversation with child ended");
    }

    /// After `abandoned` is cancelled, waits at most for the exit timeout. Each checkpoint restarts the time
    /// limit.
    async fn perform(
        &mut self,
        message: &ToChild,
        checkpointer: Option<Checkpointer>,
    ) -> Result<(), ChildFailure> {
        let Some(action) = message.action() else { return Ok(()) };
        // Children of the first generation do not know `shutdownRequested`. They only get a `shutdown`.
        let has_message = self.pipe.generation() > Generation::G0;
        if action == Action::ShutdownRequested && !has_message {
            return Ok(());
        }
        let exit_timeout = self.shared.settings.exit_timeout;
        let limit = match action {
            Action::LeaseLost => Some(exit_timeout),
            _ => self.shared.settings.answer_timeout,
        };
        let abandoned = sleep_after(self.abandoned.clone(), exit_timeout);
        let performed = select! {
            biased;
            () = abandoned => Err(ChildFailure::TooSlow { action, timeout: exit_timeout }),
            performed = self.exchange(message, action, checkpointer, limit) => performed,
        };
        if let Some(end_message) = self.end_message.take() {
            self.note_end_message(end_message, action, &performed).await;
        }
        performed
    }

    async fn note_end_message(
        &mut self,
        message: EndMessage,
        action: Action,
        performed: &Result<(), ChildFailure>,
    ) {
        let messages = &self.shared.end_messages;
        let is_end = action == Action::ShardEnded;
        match performed {
            // Some children also answer messages that they do not know.
            Ok(())
                if message == EndMessage::Shutdown
                    && is_end
                    && self.checkpoints.owes_the_end().await =>
            {
                messages.failed(message);
            }
            Ok(()) => messages.answered(message),
            // The child answered, so it knows the message.
            Err(ChildFailure::WrongAnswer { .. }) => (),
            Err(_) => {
                let next = messages.failed(message);
                self.end_message_changed =
                    message == EndMessage::Current && next == EndMessage::Shutdown;
                if self.end_message_changed {
                    let shard = &self.shard;
                    warn!(%shard, "child did not answer its end message, next child gets `shutdown`");
                }
            }
        }
    }

    async fn exchange(
        &mut self,
        message: &ToChild,
        action: Action,
        checkpointer: Option<Checkpointer>,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        // A checkpoint request without a number covers the records that were sent to the child. So late
        // requests are answered before `message` is sent.
        for _ in 0..MAX_LATE {
            let Some(late) = self.pipe.try_receive().await? else { break };
            self.answer(late, limit).await?;
        }
        let end_message = self.shared.end_messages.next(self.pipe.generation());
        let replacement = end_message.in_place_of(message);
        self.pipe.write(replacement.as_ref().unwrap_or(message), limit).await?;
        if matches!(action, Action::ShardEnded | Action::LeaseLost) {
            self.end_message = Some(end_message);
        }
        for received in self.pipe.take_received() {
            self.answer(received, limit).await?;
        }
        self.checkpoints.sent(message, checkpointer);
        self.owes_lease_lost = match action {
            Action::Initialize => true,
            Action::ShardEnded | Action::LeaseLost | Action::Shutdown => false,
            Action::ProcessRecords | Action::ShutdownRequested => self.owes_lease_lost,
        };
        self.wait_for_status(action, limit).await
    }

    async fn wait_for_status(
        &mut self,
        action: Action,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        loop {
            let received = match limit {
                Some(limit) => {
                    let too_slow = |_elapsed| ChildFailure::TooSlow { action, timeout: limit };
                    timeout(limit, self.pipe.receive()).await.map_err(too_slow)??
                }
                None => self.pipe.receive().await?,
            };
            match received {
                FromChild::Status { response_for }
                    if is_answer(response_for.as_deref(), action) =>
                {
                    return Ok(());
                }
                FromChild::Status { response_for: answered } => {
                    return Err(ChildFailure::WrongAnswer { action, answered });
                }
                request @ FromChild::Checkpoint(_) => self.answer(request, limit).await?,
            }
        }
    }

    /// Some children request a checkpoint after their status.
    async fn answer_between_actions(
        &mut self,
        message: Result<FromChild, ChildFailure>,
    ) -> Result<(), ChildFailure> {
        let message = message?;
        let settings = &self.shared.settings;
        let (limit, exit_timeout) = (settings.answer_timeout, settings.exit_timeout);
        let abandoned = sleep_after(self.abandoned.clone(), exit_timeout);
        select! {
            biased;
            () = abandoned => Err(ChildFailure::NotReading { timeout: exit_timeout }),
            answered = self.answer(message, limit) => answered,
        }
    }

    async fn answer(
        &mut self,
        message: FromChild,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        match message {
            FromChild::Checkpoint(request) => {
                let reply = self.checkpoints.write(request).await;
                self.pipe.write(&ToChild::Checkpoint(reply), limit).await
            }
            FromChild::Status { response_for } => {
                if self.unasked.once_more() != LogLevel::Debug {
                    warn!(shard = %self.shard, ?response_for, "child sent a status without an action");
                }
                Ok(())
            }
        }
    }

    async fn fail(&mut self, failure: ChildFailure, action: Option<Action>) -> ChildFailure {
        let has_ended = match &failure {
            ChildFailure::Ended(_) => true,
            ChildFailure::Pipe(error) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        };
        let failure =
            if has_ended { ChildFailure::Ended(self.pipe.end(CLEANUP).await) } else { failure };
        let shard = &self.shard;
        warn!(%shard, ?action, error = &failure as &dyn Error, "child failed, killing it");
        self.pipe.kill().await;
        // A child that was about to end, or did not know its end message, does not count as failed.
        let was_to_end = matches!(action, Some(Action::ShutdownRequested | Action::LeaseLost));
        if !was_to_end && !self.end_message_changed && !self.abandoned.is_cancelled() {
            self.shared.failed.cancel();
        }
        failure
    }

    /// Sends `leaseLost`, unless the child already got an end message.
    async fn end_child(&mut self) {
        let exit_timeout = self.shared.settings.exit_timeout;
        if self.owes_lease_lost
            && let Err(failure) = self.perform(&ToChild::LeaseLost, None).await
        {
            self.fail(failure, Some(Action::LeaseLost)).await;
            return;
        }
        let shard = self.shard.clone();
        if let Some(status) = self.pipe.close(exit_timeout).await {
            info!(%shard, %status, "child exited");
        } else {
            warn!(%shard, timeout = ?exit_timeout, "child did not exit, killing it");
            self.pipe.kill().await;
        }
    }
}

async fn sleep_after(token: CancellationToken, time: Duration) {
    token.cancelled().await;
    sleep(time).await;
}

/// Children of old generations report `shutdown` for each end.
fn is_answer(answered: Option<&str>, action: Action) -> bool {
    let is_end =
        matches!(action, Action::LeaseLost | Action::ShardEnded | Action::ShutdownRequested);
    answered == Some(action.as_str()) || is_end && answered == Some(Action::Shutdown.as_str())
}

/// The maximum number of late messages that are answered before an action is sent.
const MAX_LATE: usize = 64;

/// The time limit for reading the pipes of a child that has ended.
const CLEANUP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
