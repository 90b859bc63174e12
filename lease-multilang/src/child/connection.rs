//! The connection to the daemon. Each line is one message. The daemon and the child send messages in turn.

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

/// The connection, and the queue of checkpoints that the child must request through it.
pub(super) struct DaemonPipe<R, W> {
    pub(super) connection: Connection<R, W>,
    pub(super) requests: mpsc::Receiver<PendingRequest>,
}

/// The pipes from and to the daemon.
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
    /// Runs `work`, which is part of `action`. While `work` runs, handles its checkpoints as `policy` says.
    ///
    /// Drops `work` and returns an error if the daemon is gone or sends a message out of turn.
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
                    // Requests are polled first, so that the daemon answers each request before it reads the
                    // status. The daemon would treat a request after the status as part of the next action.
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
    /// Returns the daemon's next message; `None` after the daemon has closed the pipe.
    ///
    /// Cancel safe, because reading a line is cancel safe.
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

    /// Reports to the daemon that `action` is done.
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
        // Ignores an error: the processor may have dropped its call.
        drop(request.reply.send(reply));
        Ok(())
    }

    /// Requests a checkpoint. Returns the error in the daemon's reply, if any.
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

/// How the child handles the checkpoints that a processor requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum CheckpointPolicy {
    /// The child forwards the checkpoints to the daemon.
    Forward,
    /// The child refuses the checkpoints, because the daemon accepts none during this action.
    Refuse,
}

pub(super) fn out_of_turn(message: &ToChild, when: &'static str) -> ChildError {
    let message = message.action().map_or("the reply to a checkpoint", Action::as_str);
    ChildError::OutOfTurn { message, when }
}
