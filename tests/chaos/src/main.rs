//! Chaos tests with real processes. Workers share leases on real servers, a nemesis injects faults,
//! and a judge checks the recorded events.
//!
//! Start at [`overlapping_run`] or [`single_run`]. All processes are on one machine, and
//! `CLOCK_MONOTONIC`, which no fault changes, orders the ledger.

mod chance;
mod failure;
mod faults;
mod judge;
mod load;
mod monotonic;
mod overlapping_run;
mod probe;
mod report;
mod servers;
mod setup;
mod single_run;
mod store;
mod worker;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lease_test_servers::sync::lock;

use crate::failure::Failure;
use crate::faults::single_fault::SingleFault;
use crate::load::Load;
use crate::load::run::LoadEnded;
use crate::overlapping_run::run_overlapping;
use crate::probe::{ProbeArgs, probe};
use crate::report::command::command_of;
use crate::servers::server::{DynamoDbArgs, clock_library, serve_dynamodb};
use crate::setup::{Faults, Sabotage, Setup};
use crate::single_run::run_single;
use crate::store::{Clocks, Store};
use crate::worker::{WorkerArgs, work};

/// Injects faults into processes and servers that share leases, and judges the recorded events.
///
/// Exits with 0 if all promises were kept, with 1 if a promise was broken, and with 2 if the run failed
/// for another reason.
#[derive(Debug, Parser)]
#[command(name = "lease-chaos", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// The store that keeps the leases
    #[arg(long, value_enum, required = true)]
    store: Option<Store>,
    /// The time during which faults are injected, in minutes
    #[arg(long, default_value = "0.5", value_parser = minutes, allow_negative_numbers = true)]
    minutes: Duration,
    /// The seed of the faults; by default a new one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// The file to write the report to, besides the standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Whether faults overlap; by default single on sentinel and cluster, else overlapping
    #[arg(long, value_enum)]
    faults: Option<Faults>,
    /// Whether single faults step the wall clocks of servers
    #[arg(long, value_enum, default_value = "in-step")]
    clocks: Clocks,
    /// The longest pause between two overlapping faults, in seconds. The order of waiters is judged where no
    /// fault excuses another order
    #[arg(long, default_value = "1", value_parser = seconds)]
    pause: Duration,
    /// A single fault to inject at least once, in the given order; by default, all
    #[arg(long = "only", value_enum, value_name = "FAULT")]
    kinds: Vec<SingleFault>,
    /// Adds tasks that claim random keys, such as 256x10000: tasks x keys
    #[arg(long, value_name = "TASKSxKEYS")]
    load: Option<Load>,
    /// Breaks a rule on purpose, so that the judge must find it
    #[arg(long, value_enum)]
    sabotage: Option<Sabotage>,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker(WorkerArgs),
    #[command(hide = true)]
    Probe(ProbeArgs),
    #[command(hide = true)]
    Dynamodb(DynamoDbArgs),
}

fn minutes(text: &str) -> Result<Duration, String> {
    let rule = "minutes are a number above 0, and at most 1440, a day";
    let minutes: f64 = text.parse().map_err(|_no_number| rule)?;
    if minutes > 0.0 && minutes <= 1440.0 {
        return Ok(Duration::from_secs_f64(minutes * 60.0));
    }
    Err(rule.to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let rule = "a pause is 1 to 60 seconds";
    match text.parse() {
        Ok(seconds @ 1..=60) => Ok(Duration::from_secs(seconds)),
        _ => Err(rule.to_owned()),
    }
}

// One thread: a blocked thread stops the whole process, as in small services.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match (arguments.role, arguments.store) {
        (Some(Role::Worker(args)), _) => work(args).await.map(|()| ExitCode::SUCCESS),
        (Some(Role::Probe(args)), _) => probe(args).await.map(|()| ExitCode::SUCCESS),
        (Some(Role::Dynamodb(args)), _) => serve_dynamodb(args).await.map(|()| ExitCode::SUCCESS),
        (None, Some(store)) => {
            let by_store = match store {
                Store::Sentinel | Store::Cluster => Faults::Single,
                _ => Faults::Overlapping,
            };
            let mut kinds = arguments.kinds;
            if kinds.is_empty() {
                kinds = SingleFault::all_of(store, arguments.clocks);
            }
            let setup = Setup {
                store,
                length: arguments.minutes,
                seed: arguments.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
                pause: arguments.pause,
                workers: 5,
                counters: 3,
                ttl: Duration::from_secs(2),
                load: arguments.load,
                sabotage: arguments.sabotage,
                faults: arguments.faults.unwrap_or(by_store),
                clocks: arguments.clocks,
                kinds,
            };
            make(&setup, arguments.report).await
        }
        (None, None) => Err("--store names the store that keeps the leases".into()),
    };
    outcome.unwrap_or_else(|failure| {
        drop(writeln!(std::io::stderr(), "lease-chaos: {failure}"));
        ExitCode::from(2)
    })
}

async fn make(setup: &Setup, file: Option<PathBuf>) -> Result<ExitCode, Failure> {
    clock_library()?;
    setup.check()?;
    if let Some(file) = &file {
        // An unwritable file fails before the run, not after it.
        save(file, "")?;
    }
    show(&format!("lease-chaos: {}, seed {}", setup.store, setup.seed));
    let (ledger, verdict, load, progress) = match setup.faults {
        Faults::Overlapping => {
            let (ledger, verdict, load) = run_overlapping(setup).await?;
            (ledger, verdict, load, None)
        }
        Faults::Single => {
            let (ledger, verdict, progress) = run_single(setup).await?;
            (ledger, verdict, None, progress)
        }
    };

    let ledger = lock(&ledger);
    let command = command_of(setup, file.as_deref());
    let mut report = report::report(setup, &command, &ledger, &verdict);
    if let Some(load) = &load {
        report.push_str(&report::load::report(load, &ledger));
    }
    if let Some(progress) = &progress {
        report.push_str(&report::progress::report(progress, ledger.began));
    }
    if let Some(file) = &file {
        save(file, &report)?;
    }
    show(&report);
    let breaches = progress.as_ref().map_or(0, |progress| progress.breaches.len());
    let summary = report::summary(&ledger, &verdict);
    let more = progress.map(|_| format!(", {breaches} breaches of progress")).unwrap_or_default();
    let of_load = load.as_ref().map(report::load::summary);
    let of_load = of_load.map(|summary| format!("; load: {summary}")).unwrap_or_default();
    show(&format!("lease-chaos: seed {}: {summary}{more}{of_load}", setup.seed));
    let is_load_kept = load.as_ref().is_none_or(LoadEnded::is_kept);
    let is_kept = verdict.violations.is_empty() && breaches == 0 && is_load_kept;
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn save(file: &Path, report: &str) -> Result<(), Failure> {
    std::fs::write(file, report)
        .map_err(|error| format!("{} cannot be written: {error}", file.display()).into())
}

fn show(text: &str) {
    // Unlike `println!`, `writeln!` does not panic if the reader has closed the pipe.
    drop(writeln!(std::io::stdout(), "{text}"));
}
