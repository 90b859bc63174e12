//! The pipes of one child. A write also reads messages, so daemon and child never wait for each other.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use lease_kinesis::ShardId;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::select;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::command::ChildCommand;
use super::failure::ChildFailure;
use super::message_filter::MessageFilter;
use super::process::{Pipes, Process};
use crate::protocol::{
    FromChild, Generation, Line, LineReader, LineWriter, MAX_LINE_FROM_CHILD, ToChild,
};

pub(super) struct Pipe {
    process: Process,
    /// `None` after the daemon closed stdin.
    stdin: Option<LineWriter<ChildStdin>>,
    stdout: LineReader<ChildStdout>,
    filter: MessageFilter,
    /// Messages that arrived during a write.
    received: VecDeque<FromChild>,
}

impl Pipe {
    pub(super) fn start(
        shard: &ShardId,
        command: &ChildCommand,
    ) -> io::Result<(Self, ChildStderr)> {
        let (process, Pipes { stdin, stdout, stderr }) = Process::start(command)?;
        let pipe = Self {
            process,
            stdin: Some(LineWriter::for_daemon(stdin)),
            stdout: LineReader::new(stdout, MAX_LINE_FROM_CHILD),
            filter: MessageFilter::new(shard.clone()),
            received: VecDeque::new(),
        };
        Ok((pipe, stderr))
    }

    pub(super) fn child(&self) -> Option<u32> {
        self.process.id()
    }

    pub(super) fn generation(&self) -> Generation {
        self.filter.generation
    }

    /// Fails if the child has not read `message` after `limit`. Keeps the messages that arrive meanwhile.
    pub(super) async fn write(
        &mut self,
        message: &ToChild,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        let text = message.encode(self.filter.generation);
        let Some(stdin) = &mut self.stdin else { return Err(ChildFailure::AlreadyEnded) };
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
                timeout = &mut too_late => return Err(ChildFailure::NotReading { timeout }),
                message = receive_or_end(&mut self.stdout, &mut self.filter, &mut self.process) => {
                    if self.received.len() == MAX_UNANSWERED {
                        return Err(ChildFailure::OnlySending { messages: MAX_UNANSWERED });
                    }
                    self.received.push_back(message?);
                }
            }
        }
    }

    /// Fails if the child has ended. Cancel safe.
    pub(super) async fn receive(&mut self) -> Result<FromChild, ChildFailure> {
        match self.received.pop_front() {
            Some(message) => Ok(message),
            None => receive_or_end(&mut self.stdout, &mut self.filter, &mut self.process).await,
        }
    }

    pub(super) async fn try_receive(&mut self) -> Result<Option<FromChild>, ChildFailure> {
        select! {
            biased;
            message = self.receive() => message.map(Some),
            // While this task yields, the runtime polls the pipes.
            () = yield_now() => Ok(None),
        }
    }

    pub(super) fn take_received(&mut self) -> VecDeque<FromChild> {
        std::mem::take(&mut self.received)
    }

    /// Waits until the child exits. Returns `None` after `limit`.
    pub(super) async fn close(&mut self, limit: Duration) -> Option<ExitStatus> {
        drop(self.stdin.take());
        let ended = async {
            // The child may have to write more than the pipe's capacity before it exits.
            while self.receive().await.is_ok() {}
            self.process.end(limit).await
        };
        timeout(limit, ended).await.ok().flatten()
    }

    /// Kills the remaining processes of the child's group.
    pub(super) async fn end(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.process.end(limit).await
    }

    pub(super) async fn kill(&mut self) {
        self.process.kill().await;
    }
}

async fn receive(
    stdout: &mut LineReader<ChildStdout>,
    filter: &mut MessageFilter,
) -> Result<FromChild, ChildFailure> {
    loop {
        let line = stdout.next().await.map_err(ChildFailure::Pipe)?;
        if line == Line::End {
            return Err(ChildFailure::Ended(None));
        }
        if let Some(message) = filter.message(&line) {
            return Ok(message);
        }
    }
}

async fn receive_or_end(
    stdout: &mut LineReader<ChildStdout>,
    filter: &mut MessageFilter,
    process: &mut Process,
) -> Result<FromChild, ChildFailure> {
    select! {
        // The child may exit right after its last message, so messages are polled first. Another process may
        // hold the child's stdout open, so the exit is polled, too.
        biased;
        message = receive(stdout, filter) => message,
        status = process.ended() => Err(ChildFailure::Ended(status)),
    }
}

/// The maximum number of messages during one write. A correct child reads the reply to a checkpoint before it
/// sends another message.
const MAX_UNANSWERED: usize = 64;
