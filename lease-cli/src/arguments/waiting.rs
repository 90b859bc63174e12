//! The arguments of commands that obtain a key.

use std::time::Duration;

use clap::Args;
use lease_core::LeaseKey;

use super::values::duration;
use crate::output::verbosity::Verbosity;

/// Which key to obtain, and how long to wait for it.
#[derive(Debug, Args)]
pub(crate) struct WaitingArguments {
    /// The name that is locked.
    pub(crate) key: LeaseKey,
    /// Exits at once if another process holds KEY.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Waits for at most this time. By default, waits without a limit.
    #[arg(short, long, value_parser = duration, value_name = "DURATION")]
    pub(crate) wait: Option<Duration>,
    /// How long the lease lasts without a heartbeat. If the machine dies, KEY is free after this time.
    #[arg(long, value_parser = duration, default_value = "30s", value_name = "DURATION")]
    pub(crate) ttl: Duration,
    /// The exit code if another process holds KEY, or the wait timed out.
    #[arg(short = 'E', long, default_value_t = 75, value_name = "CODE")]
    pub(crate) conflict_exit_code: u8,
    /// The exit code if the lease was lost.
    #[arg(long, default_value_t = 124, value_name = "CODE")]
    pub(crate) lost_exit_code: u8,
    /// Prints no messages, except about errors.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Tells who holds KEY and since when, and logs each request that fails.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

impl WaitingArguments {
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }
}
