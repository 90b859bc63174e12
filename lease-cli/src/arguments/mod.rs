//! The command line.
//!
//! Start with [`Command`]. [`run`] has the arguments of `lease run`, and [`waiting`] those of all commands that obtain
//! a key. [`shards`] has those of `lease shards`, and `serve` those of `lease serve`. [`values`] parses durations, signals and hand-overs.

mod run;
#[cfg(feature = "serve")]
mod serve;
mod shards;
pub(crate) mod values;
mod waiting;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use lease_core::{HandOver, LeaseKey};

pub(crate) use self::run::RunArguments;
#[cfg(feature = "serve")]
pub(crate) use self::serve::ServeArguments;
pub(crate) use self::shards::ShardsArguments;
pub(crate) use self::values::HandOverSource;
use self::values::{duration, hand_over_source, interval};
pub(crate) use self::waiting::WaitingArguments;
use crate::exit::Exit;
use crate::jobs::arguments::JobsCommand;
use crate::output::messages::say;

/// Runs commands under distributed leases, and shows and ends leases.
///
/// A lease locks a key, and expires if its holder dies. All processes that use the same store exclude each other.
#[derive(Debug, Parser)]
#[command(name = "lease", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Arguments {
    /// The store of the leases. By default an SQLite file: `/var/lib/lease/leases.db` for root, or
    /// `$XDG_STATE_HOME/lease/leases.db`.
    #[arg(long, value_name = "URL", env = "LEASE_STORE", hide_env_values = true, global = true)]
    #[arg(help_heading = OF_ALL)]
    pub(crate) store: Option<String>,
    /// Prints one JSON object per line.
    #[arg(long, global = true, help_heading = OF_ALL)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command while it holds KEY.
    Run(RunArguments),
    /// Holds KEY until stdin closes or a signal comes; prints the fencing token.
    Hold(WaitingArguments),
    /// Obtains KEY and prints a hand-over text, for `lease give`.
    ///
    /// KEY stays held for the ttl without heartbeats, for scripts in steps.
    Take(WaitingArguments),
    /// Releases the key of a hand-over text.
    Give {
        /// The text that `lease take` has printed, or - to read it from stdin.
        #[arg(value_parser = hand_over_source, value_name = "TEXT")]
        text: HandOverSource,
    },
    /// Lists the held keys that start with PREFIX.
    Ls {
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        /// Lists all records, also of free keys, with their attributes.
        #[arg(long)]
        long: bool,
    },
    /// Shows the holder of KEY. Exits with 0 if KEY is held, with 1 if it is free.
    Who { key: LeaseKey },
    /// Prints one line per change of the keys that start with PREFIX.
    Watch {
        #[arg(default_value = "", hide_default_value = true, value_name = "KEY|PREFIX")]
        prefix: String,
        /// How often the store is read.
        #[arg(long, value_parser = interval, default_value = "1s", value_name = "DURATION")]
        interval: Duration,
    },
    /// Ends the lease of another process: its holder stops, and the key becomes free.
    Evict {
        key: LeaseKey,
        /// The grant id that `lease ls` shows.
        #[arg(long, value_name = "ID")]
        grant: String,
    },
    /// Frees the key of a holder that is certainly dead.
    Release {
        key: LeaseKey,
        /// The grant id that `lease ls` shows.
        #[arg(long, value_name = "ID")]
        grant: String,
        /// Confirms that no process works under this lease.
        #[arg(long, required = true)]
        force: bool,
    },
    /// Checks the store: one line per check, with a remedy.
    Doctor,
    /// Measures the store: leases per second, and the latency of heartbeats.
    Bench {
        /// How many tasks obtain and release at the same time.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
        tasks: u16,
        /// How long to measure.
        #[arg(long, value_parser = duration, default_value = "5s", value_name = "DURATION")]
        time: Duration,
    },
    /// Lists the shards that the workers of an application of lease-kinesis read, with their lag.
    Shards(ShardsArguments),
    /// Lists, pauses, resumes, triggers and repairs the jobs of lease-scheduler.
    Jobs {
        #[command(subcommand)]
        command: Option<JobsCommand>,
    },
    /// Serves a page for operators: leases, jobs, shards and switches as they change.
    ///
    /// The page only shows them, unless --allow-changes is given.
    #[cfg(feature = "serve")]
    Serve(ServeArguments),
    /// Prints a completion script for SHELL.
    Completions { shell: clap_complete::Shell },
    /// Prints the man page.
    Man,
}

/// Parses the command line of this process. Returns an exit code after `--help`, and after an error.
pub(crate) fn parse() -> Result<Arguments, ExitCode> {
    Arguments::try_parse().map_err(|error| {
        // An error means that nobody reads the output.
        drop(error.print());
        let words: Vec<_> = std::env::args_os().collect();
        if error.kind() == ErrorKind::UnknownArgument && lacks_separator(&words) {
            say("write -- before the command: lease run KEY -- COMMAND");
        }
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::SUCCESS.into(),
            _ => Exit::USAGE.into(),
        }
    })
}

/// Whether these are the words of `lease run KEY COMMAND`, as for flock.
fn lacks_separator(words: &[OsString]) -> bool {
    words.iter().any(|word| word == "run") && !words.iter().any(|word| word == "--")
}

/// The definition of the command line, for completions and the man page.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

impl HandOverSource {
    /// Returns the hand-over. Reads a line from stdin, if the text is `-`.
    pub(crate) fn read(self) -> std::io::Result<HandOver> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Stdin => {
                let mut line = String::new();
                std::io::stdin().read_line(&mut line)?;
                line.trim().parse().map_err(std::io::Error::other)
            }
        }
    }
}

const OF_ALL: &str = "Options of all commands";

const AFTER_HELP: &str = "\
Example: lease run nightly -- ./backup.sh

Exit codes: 75 held by another process, 124 lease lost, 69 store out of reach, 64 usage, 78 configuration, \
125 own fault, 126 command not executable, 127 command not found. `lease run` exits with the code of its command, \
or with 128+n if signal n ended it.

Durations: 90s, 5m, 1h30m.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }
}
