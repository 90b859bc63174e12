//! This library beside the crates that one would pick instead, and beside the bare commands, on the
//! same servers in one run: `cargo run --release`, in this folder.
//!
//! All is compared by ratios within a round: absolute times are the machine's.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that cannot go on ends, and prints what it found"
)]

mod awake;
mod lock;
mod locks;
mod machine;
mod race;
mod report;
mod scenarios;
mod served;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::awake::Awake;
use crate::report::Report;

/// Of all leases and locks.
const TTL: Duration = Duration::from_secs(10);

/// No call takes as long, unless its server hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures this library beside its peers, and prints tables.
#[derive(Parser)]
struct Arguments {
    /// Which scenarios; all, if none is named
    scenarios: Vec<String>,
    /// How often each contestant has its turn
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Names the scenarios
    #[arg(long)]
    list: bool,
    /// Writes the tables into this file, between its marks, and the plots beside it
    #[arg(long, value_name = "README.md")]
    write: Option<PathBuf>,
    /// Is the server of another one of these
    #[arg(long, hide = true)]
    serve_dynamodb: bool,
    /// Holds many leases for another one of these
    #[arg(long, hide = true)]
    hold: Option<String>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    if arguments.serve_dynamodb {
        served::serve().await;
        return Ok(());
    }
    if let Some(task) = arguments.hold {
        println!("{}", scenarios::hold(&task).await);
        return Ok(());
    }
    if arguments.list {
        for scenario in scenarios::ALL {
            println!("{:<20} {}", scenario.name, scenario.what);
        }
        return Ok(());
    }
    let chosen = scenarios::named(&arguments.scenarios)?;
    let _awake = Awake::all_cores()?;
    let mut report = Report::begin();
    println!("{}", report.head());
    for scenario in chosen {
        for table in scenario.run(arguments.rounds.into()).await {
            println!("{}", table.markdown());
            report.add(table);
        }
        // Each time, so that what was measured is there, whatever becomes of the rest.
        if let Some(path) = &arguments.write {
            report.write(path)?;
        }
    }
    Ok(())
}
