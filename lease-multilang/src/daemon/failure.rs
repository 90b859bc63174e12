//! What a child did that ends it.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

use crate::multilang::Action;

/// Why a child is of no use any more: it is killed then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChildFailure {
    /// The command cannot be run.
    #[error("child {command:?} was not started")]
    NotStarted {
        /// What was to be run.
        command: String,
        /// What the system says.
        source: io::Error,
    },
    /// It ended, or closed its stdout, before it was told to.
    #[error("child ended unasked{}", Status(*.0))]
    Ended(Option<ExitStatus>),
    /// It said that it had done something else than it was told.
    #[error("child was told to {action}, and answered for {answered:?}")]
    WrongAnswer {
        /// What it was told.
        action: Action,
        /// What it says it has done.
        answered: Option<String>,
    },
    /// It did not answer in time.
    #[error("child did not answer {action} within {limit:?}")]
    TooSlow {
        /// What it was told.
        action: Action,
        /// How long it had.
        limit: Duration,
    },
    /// It did not read what it was told in time.
    #[error("child did not read what it was told within {limit:?}")]
    NotReading {
        /// How long it had.
        limit: Duration,
    },
    /// It goes on talking, and reads nothing meanwhile.
    #[error("child said {messages} things more, and did not read what it was told")]
    NotListening {
        /// How many were listened to.
        messages: usize,
    },
    /// It could not be talked with.
    #[error("the pipe to the child failed")]
    Pipe(#[source] io::Error),
    /// It had failed before; that was told then.
    #[error("child has ended before")]
    Before,
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
