//! Twenty processes wait for one key on Redis, and obtain it in the order in which they arrived.
//!
//! The program starts itself once for each process. Each process prints its position in the queue.
//! Each release hands the key to the next process.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use lease_core::{LeaseKey, Locker};
use lease_examples::{Failure, exit, print_line, stores::open};
use tokio::time::sleep;

/// Starts processes that wait for one key, and prints the order in which they obtain it.
#[derive(Debug, Parser)]
struct Arguments {
    /// The store of the leases: redis://HOST:PORT, which processes can share.
    #[arg(long)]
    store: String,
    /// The number of processes, 1 to 100.
    #[arg(long, default_value_t = 20, value_name = "NUMBER")]
    processes: usize,
    /// The key. By default, a new key.
    #[arg(long)]
    key: Option<LeaseKey>,
    /// Runs one of the processes.
    #[arg(long, hide = true)]
    waits: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if arguments.waits { wait(arguments).await } else { run(arguments).await };
    exit("waiting_in_turn", done)
}

/// Prints the position and then the token, each on its own line.
async fn wait(arguments: Arguments) -> Result<ExitCode, Failure> {
    let locker = Locker::new(open(&arguments.store).await?);
    let key = arguments.key.ok_or("the key is missing")?;

    let wait = locker.wait_in_turn(&key);
    let mut positions = wait.positions();
    let waiting = tokio::spawn(wait);
    let ahead = positions.wait_for(Option::is_some).await?.unwrap_or(0);
    print_line(ahead);

    let lease = waiting.await??;
    print_line(lease.token());
    sleep(WORK).await;
    lease.release().await?;
    Ok(ExitCode::SUCCESS)
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if !(1..=MAX_PROCESSES).contains(&arguments.processes) {
        return Err(format!("the number of processes is 1 to {MAX_PROCESSES}").into());
    }
    let new_key = || format!("waiting-in-turn-{}", std::process::id()).parse();
    let key = arguments.key.clone().map_or_else(new_key, Ok)?;
    let locker = Locker::new(open(&arguments.store).await?);
    let lease = locker.wait_until_obtained(&key).await?;

    let mut processes = Vec::new();
    for number in 1..=arguments.processes {
        let mut process = Process::start(&arguments.store, &key)?;
        print_line(format_args!("process {number:2} waits behind {} others", process.line()?));
        processes.push(process);
    }
    lease.release().await?;

    let mut tokens = Vec::new();
    for (number, process) in (1..).zip(&mut processes) {
        let token: u64 = process.line()?.parse()?;
        print_line(format_args!("process {number:2} holds the key under token {token}"));
        tokens.push(token);
    }
    for process in &mut processes {
        process.child.wait()?;
    }
    let in_order = tokens.is_sorted();
    let verdict = if in_order { "in the order of arrival" } else { "in another order" };
    print_line(format_args!("verdict: {} processes obtained the key {verdict}", tokens.len()));
    Ok(if in_order { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The process is killed if the program fails.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(store: &str, key: &LeaseKey) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--waits", "--store", store, "--key", key.as_str()])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("the process has no output")?;
        Ok(Self { child, lines: BufReader::new(output).lines() })
    }

    fn line(&mut self) -> Result<String, Failure> {
        Ok(self.lines.next().ok_or("a process ended early")??)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
    }
}

const WORK: Duration = Duration::from_millis(20);

const MAX_PROCESSES: usize = 100;
