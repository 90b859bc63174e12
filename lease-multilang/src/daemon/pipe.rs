//! What is written to a child, and what is read from it: always both, so that nobody waits for ever.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::select;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::command::ChildCommand;
use super::failure::ChildFailure;
use super::noise::Noise;
use super::process::{Pipes, Process};
use crate::multilang::{
    FromChild, Generation, LONGEST_FROM_CHILD, Line, LineReader, LineWriter, ToChild,
};
use crate::shard::ShardId;

/// Owns a child, and both of its pipes.
pub(super) struct Pipe {
    process: Process,
    /// `None` once it was closed: the child then reads the end.
    stdin: Option<LineWriter<ChildStdin>>,
    stdout: LineReader<ChildStdout>,
    noise: Noise,
    /// What the child said while something was written to it.
    heard: VecDeque<FromChild>,
}

impl Pipe {
    pub(super) fn start(
        shard: &ShardId,
        command: &ChildCommand,
    ) -> io::Result<(Self, ChildStderr)> {
        let (process, Pipes { stdin, stdout, stderr }) = Process::start(command)?;
        let pipe = Self {
            process,
            stdin: Some(LineWriter::of_daemon(stdin)),
            stdout: LineReader::new(stdout, LONGEST_FROM_CHILD),
            noise: Noise::new(shard.clone()),
            heard: VecDeque::new(),
        };
        Ok((pipe, stderr))
    }

    pub(super) fn child(&self) -> Option<u32> {
        self.process.id()
    }

    /// What the child has shown that it speaks.
    pub(super) fn generation(&self) -> Generation {
        self.noise.generation
    }

    /// Writes `message`, for `limit` at most: the child need not read it at once.
    ///
    /// One that writes before it reads would wait for us, and we for it: what it says meanwhile is
    /// kept, so long as it is no more than a child has to say.
    pub(super) async fn write(
        &mut self,
        message: &ToChild,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        let text = message.encode(self.noise.generation);
        let Some(stdin) = &mut self.stdin else { return Err(ChildFailure::Before) };
        let mut write = pin!(stdin.write(&text));
        let mut too_late = pin!(async {
            match limit {
                Some(limit) => {
                    sleep(limit).await;
                    limit
                }
                None => std::future::pending().await,
            }
        });
        loop {
            select! {
                biased;
                written = &mut write => return written.map_err(ChildFailure::Pipe),
                limit = &mut too_late => return Err(ChildFailure::NotReading { limit }),
                said = hear_or_end(&mut self.stdout, &mut self.noise, &mut self.process) => {
                    if self.heard.len() == MOST_UNANSWERED {
                        return Err(ChildFailure::NotListening { messages: MOST_UNANSWERED });
                    }
                    self.heard.push_back(said?);
                }
            }
        }
    }

    /// The next message, or how the child has ended.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost where the future is dropped.
    pub(super) async fn hear(&mut self) -> Result<FromChild, ChildFailure> {
        match self.heard.pop_front() {
            Some(said) => Ok(said),
            None => hear_or_end(&mut self.stdout, &mut self.noise, &mut self.process).await,
        }
    }

    /// The next message, if the child has said one by now.
    pub(super) async fn hear_now(&mut self) -> Result<Option<FromChild>, ChildFailure> {
        select! {
            biased;
            said = self.hear() => said.map(Some),
            // The runtime looks at its pipes before it goes on here.
            () = yield_now() => Ok(None),
        }
    }

    /// What the child said while something was written to it.
    pub(super) fn take_heard(&mut self) -> VecDeque<FromChild> {
        std::mem::take(&mut self.heard)
    }

    /// Closes the child's stdin, and waits for its end; `None` where it took longer than `limit`.
    pub(super) async fn close(&mut self, limit: Duration) -> Option<ExitStatus> {
        drop(self.stdin.take());
        let ended = async {
            // It may have more to say than the pipe has room for.
            while self.hear().await.is_ok() {}
            self.process.end(limit).await
        };
        timeout(limit, ended).await.ok().flatten()
    }

    /// Waits until the child has ended by itself, for `limit` at most; then kills what is left.
    pub(super) async fn end(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.process.end(limit).await
    }

    pub(super) async fn kill(&mut self) {
        self.process.kill().await;
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

/// By the protocol a child reads the reply to a checkpoint before it says anything more.
const MOST_UNANSWERED: usize = 64;
