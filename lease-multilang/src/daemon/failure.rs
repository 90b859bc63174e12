//! The failures of a child.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

use crate::protocol::Action;

/// The failure of a child.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChildFailure {
    /// The command cannot be run.
    #[error("child {command:?} was not started")]
    NotStarted {
        /// The command.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// The child exited, or closed its stdout, before the daemon ended it.
    #[error("child exited early{}", Status(*.0))]
    Ended(Option<ExitStatus>),
    /// The child's status names another action.
    #[error("child was sent {action}, and answered for {answered:?}")]
    WrongAnswer {
        /// The action that it was sent.
        action: Action,
        /// The action that the child reported as done.
        answered: Option<String>,
    },
    /// The child did not answer in time.
    #[error("child did not answer {action} within {timeout:?}")]
    TooSlow {
        /// The action that it was sent.
        action: Action,
        /// The time-out.
        timeout: Duration,
    },
    /// The child did not read a message in time.
    #[error("child did not read a message within {timeout:?}")]
    NotReading {
        /// The time-out.
        timeout: Duration,
    },
    /// The child sends messages and reads none.
    #[error("child sent {messages} messages and read none")]
    OnlySending {
        /// The number of messages that the daemon received during one write.
        messages: usize,
    },
    /// A pipe failed.
    #[error("the pipe to the child failed")]
    Pipe(#[source] io::Error),
    /// The child ended before this request. The log has the reason.
    #[error("child has already ended")]
    AlreadyEnded,
}

struct Status(Option<ExitStatus>);

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(status) => write!(f, ", with {status}"),
            None => f.write_str(": it closed its stdout"),
        }
    }
}
