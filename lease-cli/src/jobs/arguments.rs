//! The command line of `lease jobs`.

use std::time::Duration;

use clap::{Args, Subcommand};
use lease_core::LeaseKey;
use lease_scheduler::Ending;
use lease_scheduler::jiff::{SignedDuration, Timestamp};
use lease_scheduler::{SystemWallClock, WallClock};

use crate::arguments::values::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// Lists the jobs whose names start with PREFIX: schedule, next tick, pause, last run.
    List {
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
    },
    /// Lists past runs, of JOB or of all jobs, the latest first.
    History(HistoryArguments),
    /// Stops the ticks of JOB on all machines, until `lease jobs resume`. A running body continues.
    Pause {
        job: LeaseKey,
        /// The reason, for `lease jobs list`.
        #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
        why: String,
    },
    /// Ends a pause.
    Resume { job: LeaseKey },
    /// Runs JOB once, on a machine that has it.
    ///
    /// Exits with 0 if the run was started, or waits after --detach, with 75 if JOB runs or another trigger waits, with 69 if no scheduler
    /// started it in time, and with 1 if JOB is switched off.
    Trigger(TriggerArguments),
    /// Removes the mark of a machine whose clock was ahead, so that ticks run again. Correct the clocks first.
    Repair { job: LeaseKey },
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    pub(crate) job: Option<LeaseKey>,
    /// Only runs that began at this time or later: 2026-11-21T03:00:00Z, or 2h for two hours ago.
    #[arg(long, value_parser = time, value_name = "TIME")]
    pub(crate) since: Option<Timestamp>,
    /// Only runs that began before this time.
    #[arg(long, value_parser = time, value_name = "TIME")]
    pub(crate) until: Option<Timestamp>,
    /// Only runs that ended in this way: running, finished, failed, timed-out, died or missed.
    #[arg(long, value_parser = ending)]
    pub(crate) ending: Option<Ending>,
    /// At most this number of runs of each job.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct TriggerArguments {
    pub(crate) job: LeaseKey,
    /// Arguments for the body, as texts.
    #[arg(value_parser = argument, value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<(String, String)>,
    /// A second trigger with this id starts no second run.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// How long to wait until a scheduler has started the run. Afterwards, the trigger is withdrawn.
    #[arg(long, value_parser = duration, default_value = "10s", value_name = "DURATION")]
    pub(crate) wait: Duration,
    /// Returns at once. The trigger expires after an hour.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) detach: bool,
}

/// Parses a time, or a length of time before now.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let wrong = || format!("{text:?} is neither a time such as 2026-11-21T03:00:00Z nor 2h");
    let ago = duration(text).ok().and_then(|ago| SignedDuration::try_from(ago).ok());
    SystemWallClock::new().now().saturating_sub(ago.ok_or_else(wrong)?).map_err(|_| wrong())
}

fn ending(text: &str) -> Result<Ending, String> {
    let found = ENDINGS.iter().find(|(name, _)| *name == text).map(|(_, ending)| *ending);
    found.ok_or_else(|| {
        let names: Vec<_> = ENDINGS.iter().map(|(name, _)| *name).collect();
        format!("write one of {}", names.join(", "))
    })
}

/// Returns the name of `ending` on the command line and in the output.
pub(crate) fn ending_name(ending: Ending) -> &'static str {
    ENDINGS.iter().find(|(_, known)| *known == ending).map_or("unknown", |(name, _)| name)
}

fn argument(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write an argument as NAME=VALUE".to_owned()),
    }
}

const ENDINGS: [(&str, Ending); 6] = [
    ("running", Ending::Running),
    ("finished", Ending::Finished),
    ("failed", Ending::Failed),
    ("timed-out", Ending::TimedOut),
    ("died", Ending::Died),
    ("missed", Ending::Missed),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_endings_and_arguments_are_read() {
        assert_eq!(
            time("2026-11-21T03:00:00Z"),
            "2026-11-21T03:00:00Z".parse().map_err(|_| String::new())
        );
        assert!(time("2h").unwrap() < SystemWallClock::new().now());
        assert!(time("yesterday").is_err());
        assert_eq!(ending("timed-out"), Ok(Ending::TimedOut));
        assert!(ending("gone").unwrap_err().contains("timed-out"));
        assert_eq!(argument("day=a=b"), Ok(("day".to_owned(), "a=b".to_owned())));
        assert!(argument("=x").is_err() && argument("x").is_err());
    }
}
