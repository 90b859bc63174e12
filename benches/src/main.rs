//! Compares this library with similar crates and with bare commands, on the same servers in one
//! run: `cargo run --release`, in this folder. Absolute times depend on the machine, so the results
//! are ratios within a round.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed step ends the benchmark; results are printed"
)]

mod canned_dynamodb;
mod cores;
mod lock;
mod locks;
mod machine;
mod peer_process;
mod peer_program;
mod race;
mod report;
mod scenarios;
mod server_process;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::cores::Awake;
use crate::report::Report;

const TTL: Duration = Duration::from_secs(10);

/// Only a call to a hung server reaches this limit.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Compares this library with similar crates, and prints tables
#[derive(Parser)]
struct Arguments {
    /// The scenarios to run; by default, all
    scenarios: Vec<String>,
    /// The number of rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Lists the scenarios
    #[arg(long)]
    list: bool,
    /// Replaces the measured section of this file by the tables, and writes the plots into plots/ next to it
    #[arg(long, value_name = "README.md")]
    write: Option<PathBuf>,
    /// Runs as a DynamoDB server for another process of this program
    #[arg(long, hide = true)]
    serve_dynamodb: bool,
    /// Runs as a server with canned replies for another process of this program
    #[arg(long, hide = true)]
    serve_canned_dynamodb: bool,
    /// Holds many leases for another process of this program
    #[arg(long, hide = true)]
    hold: Option<String>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    if arguments.serve_dynamodb {
        server_process::serve().await;
        return Ok(());
    }
    if arguments.serve_canned_dynamodb {
        canned_dynamodb::serve()?;
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
    let mut report = Report::new();
    println!("{}", report.head());
    for scenario in chosen {
        for table in scenario.run(arguments.rounds.into()).await {
            println!("{}", table.markdown());
            report.add(table);
        }
        // A later failure then loses no results.
        if let Some(path) = &arguments.write {
            report.write(path)?;
        }
    }
    Ok(())
}
