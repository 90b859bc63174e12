//! The connection to the daemon. The daemon and the child send messages in turn.

use std::future::Future;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::{select, try_join};
use tokio_util::sync::CancellationToken;

use super::daemon_writer::PendingRequest;
use super::error::ChildError;
use crate::protocol::{
    Action, CheckpointReply, CheckpointRequest, ErrorName, FromChild, Generation, InvalidMessage,
    Line, LineReader, LineWriter, ToChild,
};

pub(super) struct DaemonPipe<R, W> {
    pub(super) connection: Connection<R, W>,
    pub(super) requests: mpsc::Receiver<PendingRequest>,
}

pub(super) struct Connection<R, W> {
    pub(super) lines: LineReader<R>,
    pub(super) writer: LineWriter<W>,
    pub(super) generation: Generation,
}

impl<R, W> DaemonPipe<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    /// Runs `work`, a part of `action`. Drops `work` and fails if the daemon is gone or sends a message out
    /// of turn.
    pub(super) async fn during<F: Future>(
        &mut self,
        action: Action,
        policy: CheckpointPolicy,
        work: F,
    ) -> Result<F::Output, ChildError> {
        let Self { connection, requests } = self;
        let done = CancellationToken::new();
        let work = async {
            let output = work.await;
            done.cancel();
            Ok(output)
        };
        let serve = async {
            loop {
                select! {
                    biased;
                    // This branch is polled first, because the daemon would treat a request after the status as part of the
                    // next action.
                    Some(request) = requests.recv() => {
                        connection.serve(request, policy).await?;
                    }
                    () = done.cancelled() => return Ok(()),
                    message = connection.receive(action.as_str()) => {
                        return Err(match message? {
                            None => ChildError::Gone { during: action.as_str() },
                            Some(message) => out_of_turn(&message, "before the child had answered"),
                        });
                    }
                }
            }
        };
        let (output, ()) = try_join!(work, serve)?;
        Ok(output)
    }
}

impl<R, W> Connection<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    /// `None` after the daemon has closed the pipe. Cancel safe.
    pub(super) async fn receive(
        &mut self,
        during: &'static str,
    ) -> Result<Option<ToChild>, ChildError> {
        loop {
            let message = match self.lines.next().await.map_err(ChildError::Read)? {
                Line::Whole(text) => ToChild::decode(text),
                // The pipe was closed before the line feed. If the text is JSON, the message is complete.
                Line::Unterminated(text) => match ToChild::decode(text) {
                    Err(InvalidMessage::NotJson(_)) => return Err(ChildError::Gone { during }),
                    message => message,
                },
                Line::TooLong(length) => return Err(ChildError::TooLong(length)),
                Line::NotUtf8(_) => return Err(ChildError::NotUtf8),
                Line::End => return Ok(None),
            };
            match message {
                Ok(message) => return Ok(Some(message)),
                Err(InvalidMessage::Blank) => (),
                Err(invalid) => return Err(invalid.into()),
            }
        }
    }

    pub(super) async fn report_done(&mut self, action: Action) -> Result<(), ChildError> {
        self.send(&FromChild::done(action)).await
    }

    async fn serve(
        &mut self,
        request: PendingRequest,
        policy: CheckpointPolicy,
    ) -> Result<(), ChildError> {
        let reply = match policy {
            CheckpointPolicy::Forward => self.request_checkpoint(request.checkpoint).await?,
            CheckpointPolicy::Refuse => Some(ErrorName::Shutdown),
        };
        // The processor may have dropped its call.
        drop(request.reply.send(reply));
        Ok(())
    }

    /// Returns the error in the daemon's reply.
    async fn request_checkpoint(
        &mut self,
        checkpoint: CheckpointRequest,
    ) -> Result<Option<ErrorName>, ChildError> {
        let message = FromChild::Checkpoint(checkpoint);
        self.send(&message).await?;
        let FromChild::Checkpoint(requested) = message else { return Ok(None) };
        match self.receive("a checkpoint").await? {
            Some(ToChild::Checkpoint(CheckpointReply { request, error }))
                if request == requested =>
            {
                Ok(error)
            }
            Some(ToChild::Checkpoint(CheckpointReply { request: replied, .. })) => {
                Err(ChildError::OtherReply { requested, replied })
            }
            Some(message) => Err(out_of_turn(&message, "in place of the reply to a checkpoint")),
            None => Err(ChildError::Gone { during: "a checkpoint" }),
        }
    }

    async fn send(&mut self, message: &FromChild) -> Result<(), ChildError> {
        let line = message.encode(self.generation);
        self.writer.write(&line).await.map_err(ChildError::Write)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum CheckpointPolicy {
    Forward,
    /// The daemon accepts no checkpoints during this action.
    Refuse,
}

pub(super) fn out_of_turn(message: &ToChild, when: &'static str) -> ChildError {
    let message = message.action().map_or("the reply to a checkpoint", Action::as_str);
    ChildError::OutOfTurn { message, when }
}
