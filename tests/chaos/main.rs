//! Chaos on real processes: workers that share leases on real servers, a nemesis that hurts
//! both, and a judge who reads afterwards what everybody did.
//!
//! One machine, one clock: what is in the ledger is ordered by `CLOCK_MONOTONIC`, which no fault
//! touches.

mod canary;
mod chance;
mod counted;
mod desk;
mod episodes;
mod fault_kind;
mod fleet;
mod judge;
mod ledger;
mod link;
mod nemesis;
mod observations;
mod plain;
mod probe;
mod probe_event;
mod probes;
mod progress;
mod progress_report;
mod report;
mod resource;
mod saying;
mod server;
mod servers;
mod setup;
mod single_faults;
mod single_run;
mod slots;
mod stamp;
mod stores;
mod topology;
mod trouble;
mod worker;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Parser, Subcommand};
use lease_dynamodb::DynamoDbStore;
use lease_tests::dynamodb::client_of;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::chance::Chance;
use crate::fault_kind::FaultKind;
use crate::fleet::Fleet;
use crate::judge::{Finding, Verdict, judge, starved};
use crate::ledger::Ledger;
use crate::link::Link;
use crate::nemesis::Nemesis;
use crate::probe::{ProbeOrders, probe};
use crate::resource::{Gates, Resource};
use crate::server::{Place, Server, be_dynamodb, clock_library};
use crate::setup::{Clocks, Faults, Sabotage, Setup, Store};
use crate::single_run::run_single;
use crate::stamp::Stamp;
use crate::worker::{Orders, work};

/// Why a run could not be made.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Hurts processes and servers that share leases, and judges what they did meanwhile.
///
/// Ends with 0 where all promises were kept, with 1 where one was broken, and with 2 where the
/// run could not be made.
#[derive(Debug, Parser)]
#[command(name = "lease-chaos", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Where the leases are kept
    #[arg(long, value_enum, required = true)]
    store: Option<Store>,
    /// How long faults are made for
    #[arg(long, default_value = "0.5", value_parser = minutes, allow_negative_numbers = true)]
    minutes: Duration,
    /// Decides on the faults; without it, a new one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// Where to write the report to, beside the standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// How faults follow each other; one at a time on sentinel and cluster, else overlapping
    #[arg(long, value_enum)]
    faults: Option<Faults>,
    /// What happens to the wall clocks of servers, with single faults
    #[arg(long, value_enum, default_value = "in-step")]
    clocks: Clocks,
    /// The single faults to make, each at least once, in this order; without it, all
    #[arg(long = "only", value_enum, value_name = "FAULT")]
    kinds: Vec<FaultKind>,
    /// Breaks something on purpose, for the judge to find
    #[arg(long, value_enum)]
    sabotage: Option<Sabotage>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What a process is that was started by a run.
#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker(Orders),
    #[command(hide = true)]
    Probe(ProbeOrders),
    #[command(hide = true)]
    Dynamodb(Place),
}

fn minutes(text: &str) -> Result<Duration, String> {
    let rule = "minutes are a number above 0, and at most 1440, a day";
    let minutes: f64 = text.parse().map_err(|_no_number| rule)?;
    if minutes > 0.0 && minutes <= 1440.0 {
        return Ok(Duration::from_secs_f64(minutes * 60.0));
    }
    Err(rule.to_owned())
}

// One thread: a process that is stopped or blocked stops altogether, as small services do.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match (arguments.role, arguments.store) {
        (Some(Role::Worker(orders)), _) => work(orders).await.map(|()| ExitCode::SUCCESS),
        (Some(Role::Probe(orders)), _) => probe(orders).await.map(|()| ExitCode::SUCCESS),
        (Some(Role::Dynamodb(place)), _) => be_dynamodb(place).await.map(|()| ExitCode::SUCCESS),
        (None, Some(store)) => {
            let by_store = match store {
                Store::Sentinel | Store::Cluster => Faults::Single,
                Store::Redis | Store::Quorum | Store::Dynamodb => Faults::Overlapping,
            };
            let mut kinds = arguments.kinds;
            if kinds.is_empty() {
                kinds = FaultKind::all_of(store, arguments.clocks);
            }
            let setup = Setup {
                store,
                length: arguments.minutes,
                seed: arguments.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
                workers: 5,
                counters: 3,
                ttl: Duration::from_secs(2),
                sabotage: arguments.sabotage,
                faults: arguments.faults.unwrap_or(by_store),
                clocks: arguments.clocks,
                kinds,
            };
            make(&setup, arguments.report).await
        }
        (None, None) => Err("--store says where the leases are kept".into()),
    };
    outcome.unwrap_or_else(|failure| {
        drop(writeln!(std::io::stderr(), "lease-chaos: {failure}"));
        ExitCode::from(2)
    })
}

/// Makes a run, and tells of it.
async fn make(setup: &Setup, file: Option<PathBuf>) -> Result<ExitCode, Failure> {
    clock_library()?;
    setup.check()?;
    if let Some(file) = &file {
        // Now, not after twenty minutes.
        save(file, "")?;
    }
    show(&format!("lease-chaos: {}, seed {}", setup.store, setup.seed));
    let (ledger, verdict, progress) = match setup.faults {
        Faults::Overlapping => {
            let (ledger, verdict) = run(setup).await?;
            (ledger, verdict, None)
        }
        Faults::Single => run_single(setup).await?,
    };

    let ledger = lock(&ledger);
    let command = command_of(setup, file.as_deref());
    let mut report = report::report(setup, &command, &ledger, &verdict);
    if let Some(progress) = &progress {
        report.push_str(&progress_report::report(progress, ledger.began));
    }
    if let Some(file) = &file {
        save(file, &report)?;
    }
    show(&report);
    let breaches = progress.as_ref().map_or(0, |progress| progress.breaches.len());
    let summary = report::summary(&ledger, &verdict);
    let more = progress.map(|_| format!(", {breaches} breaches of progress")).unwrap_or_default();
    show(&format!("lease-chaos: seed {}: {summary}{more}", setup.seed));
    let is_kept = verdict.violations.is_empty() && breaches == 0;
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn save(file: &Path, report: &str) -> Result<(), Failure> {
    std::fs::write(file, report)
        .map_err(|error| format!("{} cannot be written: {error}", file.display()).into())
}

async fn run(setup: &Setup) -> Result<(Arc<Mutex<Ledger>>, Verdict), Failure> {
    let mut chance = Chance::from_seed(setup.seed);
    let servers = start_servers(setup).await?;
    let (links, stores) = link(setup, &servers).await?;
    let ledger = Arc::new(Mutex::new(Ledger::new(Stamp::now(), Clocks::InStep)));
    let gates = match setup.sabotage {
        Some(Sabotage::Heedless) => Gates::Open,
        _ => Gates::Shut,
    };
    let resource = Arc::new(Resource::new(setup.counters, gates, Arc::clone(&ledger)));
    let fleet = Fleet::start(setup, stores, &resource, &ledger, &mut chance)?;

    let berths = fleet.berths.clone();
    let mut nemesis = Nemesis::new(setup, berths, links, servers, &ledger, &mut chance);
    let end = Stamp::now() + setup.length;
    // It owns the servers, which are there until the workers are gone.
    let nemesis = spawn_blocking(move || nemesis.rage(end).map(|()| nemesis)).await??;
    let starved = await_recovery(setup, &ledger).await;
    fleet.stop().await?;
    drop(nemesis);

    let mut verdict = judge(&lock(&ledger));
    verdict.violations.extend(starved);
    Ok((ledger, verdict))
}

/// Waits until each key is held again after the last fault; returns what is wrong where one is
/// not.
async fn await_recovery(setup: &Setup, ledger: &Mutex<Ledger>) -> Vec<Finding> {
    let ended = Stamp::now();
    let mut hungry: Vec<_> = (0..setup.counters).collect();
    while !hungry.is_empty() && Stamp::now().since(ended) < RECOVERY {
        sleep(Duration::from_millis(50)).await;
        hungry.retain(|&counter| !lock(ledger).held_since(ended, counter));
    }
    let now = Stamp::now();
    hungry.iter().map(|&counter| starved(counter, ended, now)).collect()
}

async fn start_servers(setup: &Setup) -> Result<Vec<Server>, Failure> {
    let count = match setup.sabotage {
        Some(Sabotage::Apart) => setup.workers,
        _ => setup.store.servers(),
    };
    let store = setup.store;
    let start = move || match store {
        Store::Dynamodb => Server::dynamodb(),
        _ => Server::redis(),
    };
    let servers =
        spawn_blocking(move || (0..count).map(|_| start()).collect::<Result<Vec<_>, _>>());
    let servers = servers.await??;
    if store == Store::Dynamodb {
        for server in &servers {
            DynamoDbStore::new(client_of(server.address()), TABLE).ensure_table().await?;
        }
    }
    // They are new, so none of them votes yet.
    sleep(store.quarantine(setup.ttl)).await;
    Ok(servers)
}

/// Of each worker: its links, and the address of its store behind them.
async fn link(
    setup: &Setup,
    servers: &[Server],
) -> Result<(Vec<Vec<Arc<Link>>>, Vec<String>), Failure> {
    let (mut all, mut stores) = (Vec::new(), Vec::new());
    for worker in 0..setup.workers {
        let reached = match setup.sabotage {
            Some(Sabotage::Apart) => servers.get(worker..=worker).unwrap_or_default(),
            _ => servers,
        };
        let mut links = Vec::new();
        for server in reached {
            links.push(Link::to(server.address()).await?);
        }
        let places: Vec<_> = links.iter().map(|link| link.address().to_string()).collect();
        stores.push(match setup.store {
            Store::Dynamodb => format!("dynamodb://{}/{TABLE}", places.join(",")),
            _ => format!("redis://{}", places.join(",")),
        });
        all.push(links);
    }
    Ok((all, stores))
}

fn command_of(setup: &Setup, file: Option<&Path>) -> String {
    use clap::ValueEnum;

    let single = setup.faults == Faults::Single;
    let mode = if single { mode_of(setup) } else { String::new() };
    let sabotage = setup.sabotage.and_then(|sabotage| sabotage.to_possible_value());
    let sabotage = sabotage.map(|value| format!(" --sabotage {}", value.get_name()));
    let file = file.map(|file| format!(" --report {}", file.display()));
    let store = setup.store.to_possible_value();
    format!(
        "cargo run --release -p lease-tests --bin lease-chaos -- \\\n    --store {} --minutes {} \
         --seed {}{mode}{}{}",
        store.as_ref().map_or("", |value| value.get_name()),
        setup.length.as_secs_f64() / 60.0,
        setup.seed,
        sabotage.unwrap_or_default(),
        file.unwrap_or_default(),
    )
}

fn mode_of(setup: &Setup) -> String {
    use clap::ValueEnum;

    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    };
    let mut mode = " --faults single".to_owned();
    if setup.clocks == Clocks::Step {
        mode.push_str(" --clocks step");
    }
    if setup.kinds != FaultKind::all_of(setup.store, setup.clocks) {
        for kind in &setup.kinds {
            mode.push_str(" --only ");
            mode.push_str(&name(kind.to_possible_value()));
        }
    }
    mode
}

pub(crate) fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

fn show(text: &str) {
    // Unlike `println!`, it does not panic where the reader has gone.
    drop(writeln!(std::io::stdout(), "{text}"));
}

const TABLE: &str = "leases";

/// How long it may take after the last fault until every key is held again: a lease that was
/// obtained just before, a quarantine, and a clock that was set back; on a machine that is given to
/// others for most of the time.
const RECOVERY: Duration = Duration::from_mins(2);
