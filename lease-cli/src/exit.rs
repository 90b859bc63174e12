//! Exit codes, and the failure that ends the program.

use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;

use lease_core::{InvalidInput, StoreError, StoreErrorKind};
use rustix::process::Signal;

use crate::output::messages::say;

/// How the program ends, if it did what it was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    pub(crate) const SUCCESS: Self = Self(0);
    /// `who`: the key is free. `evict` and `release`: another grant holds the key.
    pub(crate) const NO: Self = Self(1);
    /// `EX_USAGE` of `sysexits.h`.
    pub(crate) const USAGE: Self = Self(64);
    /// `EX_UNAVAILABLE` of `sysexits.h`: the store is out of reach.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// `EX_CONFIG` of `sysexits.h`.
    pub(crate) const CONFIGURATION: Self = Self(78);
    /// `EX_TEMPFAIL` of `sysexits.h`: another process holds the key, or the job runs.
    pub(crate) const BUSY: Self = Self(75);
    /// The lease was lost. GNU `timeout` uses the same code for a command that it stopped.
    pub(crate) const LOST: Self = Self(124);
    /// This program failed.
    pub(crate) const OWN_FAULT: Self = Self(125);
    /// The command cannot be executed.
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    /// The command was not found.
    pub(crate) const NOT_FOUND: Self = Self(127);

    pub(crate) fn code(code: u8) -> Self {
        Self(code)
    }

    /// The code that shells use for a process that died of a signal: 128+n.
    pub(crate) fn signal(signal: Signal) -> Self {
        Self(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// A failure that ends the program, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// A failure of this program or of the operating system.
    pub(crate) fn own(what: &str, error: impl fmt::Display) -> Self {
        Self::new(Exit::OWN_FAULT, format!("{what}: {error}"))
    }

    /// Prints the message and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            say(&self.message);
        }
        self.exit.into()
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match error.kind() {
            StoreErrorKind::Throttled | StoreErrorKind::Unavailable => Exit::UNAVAILABLE,
            StoreErrorKind::Refused => Exit::USAGE,
            _ => Exit::CONFIGURATION,
        };
        Self::new(exit, sentence(&error))
    }
}

impl From<InvalidInput> for Failure {
    fn from(error: InvalidInput) -> Self {
        Self::new(Exit::USAGE, error.to_string())
    }
}

impl From<io::Error> for Failure {
    /// For listings. A closed pipe, as in `lease ls | head`, ends the program without a message.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::SUCCESS, "");
        }
        Self::own("output cannot be written", error)
    }
}

/// Joins an error and its sources into one sentence, outermost first.
pub(crate) fn sentence(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
