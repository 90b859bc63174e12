//! The arguments of `lease run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;

use super::WaitingArguments;
use super::values::{duration, signal};

/// What to run, and how to stop it.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) waiting: WaitingArguments,
    /// The time from the signal to SIGKILL, if the lease is lost. At most a quarter of the ttl.
    #[arg(long, value_parser = duration, default_value = "10s", value_name = "DURATION")]
    pub(crate) grace: Duration,
    /// The signal that asks the command to end if the lease is lost.
    #[arg(long, value_parser = signal, default_value = "TERM", value_name = "SIGNAL")]
    pub(crate) signal: Signal,
    /// Keeps KEY for at least this time from its grant, also if the command ends earlier. It then has no holder, and
    /// `who` and `ls` show it as free.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) keep_for: Option<Duration>,
    /// Runs the command in the process group of this program, so that it can read from the terminal. The default
    /// if stdin is a terminal.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// The command and its arguments. No shell reads them.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
