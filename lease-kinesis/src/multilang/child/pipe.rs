//! The talk with the daemon: one line at a time, each in its turn.

use std::future::Future;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::{select, try_join};
use tokio_util::sync::CancellationToken;

use super::error::ChildError;
use super::keeper::Request;
use crate::multilang::{
    Action, Asked, ErrorName, FromChild, Generation, Line, LineReader, LineWriter, NotAMessage,
    Reply, ToChild,
};

/// The two pipes, and what is to be asked through them.
pub(super) struct Pipe<R, W> {
    pub(super) talk: Talk<R, W>,
    pub(super) requests: mpsc::Receiver<Request>,
}

/// The two pipes.
pub(super) struct Talk<R, W> {
    pub(super) lines: LineReader<R>,
    pub(super) writer: LineWriter<W>,
    pub(super) generation: Generation,
}

impl<R, W> Pipe<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    /// Does `work`, which is part of `action`, and asks for its checkpoints meanwhile.
    ///
    /// Drops it where the daemon is gone, or says something although it is not its turn.
    pub(super) async fn during<F: Future>(
        &mut self,
        action: Action,
        checkpoints: Checkpoints,
        work: F,
    ) -> Result<F::Output, ChildError> {
        let Self { talk, requests } = self;
        let worked = CancellationToken::new();
        let work = async {
            let output = work.await;
            worked.cancel();
            Ok(output)
        };
        let serve = async {
            loop {
                select! {
                    biased;
                    // The requests first, so that each is answered before the status: the daemon
                    // would take what comes later for part of the next action.
                    Some(request) = requests.recv() => {
                        talk.serve(request, checkpoints).await?;
                    }
                    () = worked.cancelled() => return Ok(()),
                    said = talk.hear(action.as_str()) => {
                        return Err(match said? {
                            None => ChildError::Gone { during: action.as_str() },
                            Some(said) => out_of_turn(&said, "before the status of what it had said"),
                        });
                    }
                }
            }
        };
        let (output, ()) = try_join!(work, serve)?;
        Ok(output)
    }
}

impl<R, W> Talk<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    /// What the daemon says next; `None` once it has closed the pipe.
    ///
    /// Cancel safe, as reading lines is.
    pub(super) async fn hear(
        &mut self,
        during: &'static str,
    ) -> Result<Option<ToChild>, ChildError> {
        loop {
            let said = match self.lines.next().await.map_err(ChildError::Read)? {
                Line::Whole(text) => ToChild::decode(text),
                // Where only its end is missing, it was said.
                Line::Unended(text) => match ToChild::decode(text) {
                    Err(NotAMessage::NotJson(_)) => return Err(ChildError::Gone { during }),
                    said => said,
                },
                Line::TooLong(length) => return Err(ChildError::TooLong(length)),
                Line::NotUtf8(_) => return Err(ChildError::NotUtf8),
                Line::End => return Ok(None),
            };
            match said {
                Ok(said) => return Ok(Some(said)),
                Err(NotAMessage::Blank) => (),
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Tells the daemon that `action` is done.
    pub(super) async fn done(&mut self, action: Action) -> Result<(), ChildError> {
        self.say(&FromChild::done(action)).await
    }

    async fn serve(
        &mut self,
        request: Request,
        checkpoints: Checkpoints,
    ) -> Result<(), ChildError> {
        let reply = match checkpoints {
            Checkpoints::Asked => self.ask(request.asked).await?,
            Checkpoints::Refused => Some(ErrorName::Shutdown),
        };
        // Nobody may wait for it any more.
        drop(request.reply.send(reply));
        Ok(())
    }

    /// Asks for a checkpoint, and hears what came of it.
    async fn ask(&mut self, asked: Asked) -> Result<Option<ErrorName>, ChildError> {
        let message = FromChild::Checkpoint(asked);
        self.say(&message).await?;
        let FromChild::Checkpoint(asked) = message else { return Ok(None) };
        match self.hear("a checkpoint").await? {
            Some(ToChild::Checkpoint(Reply { asked: replied, error })) if replied == asked => {
                Ok(error)
            }
            Some(ToChild::Checkpoint(Reply { asked: replied, .. })) => {
                Err(ChildError::OtherReply { asked, replied })
            }
            Some(said) => Err(out_of_turn(&said, "in place of the reply to a checkpoint")),
            None => Err(ChildError::Gone { during: "a checkpoint" }),
        }
    }

    async fn say(&mut self, message: &FromChild) -> Result<(), ChildError> {
        let line = message.encode(self.generation);
        self.writer.write(&line).await.map_err(ChildError::Write)
    }
}

/// What becomes of the checkpoints that are asked for now.
#[derive(Debug, Clone, Copy)]
pub(super) enum Checkpoints {
    /// The daemon is asked.
    Asked,
    /// They are refused here: the daemon has nothing to keep them by.
    Refused,
}

pub(super) fn out_of_turn(said: &ToChild, when: &'static str) -> ChildError {
    let said = said.action().map_or("the reply to a checkpoint", Action::as_str);
    ChildError::OutOfTurn { said, when }
}
