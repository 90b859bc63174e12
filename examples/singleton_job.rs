//! Several workers share one job. One worker is killed, another takes over, and every payment is
//! made exactly once.
//!
//! Each worker has its own thread and tokio runtime. In production, each worker would be a process.
//! A kill drops the worker's runtime: the heartbeats stop, and the lease is not released.

use std::future::pending;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;
use lease_core::fence::{Gate, Stale};
use lease_core::{FencingToken, LeaseKey, LeaseOptions, Lessee, Locker};
use lease_examples::payroll::{self, Ledger, Payment};
use lease_examples::{Failure, Timeline, exit, print_line, stores::open};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio::{runtime, select};

/// Pays every employee exactly once, although one worker is killed.
#[derive(Debug, Parser)]
struct Arguments {
    /// The store of the leases: memory; redis://HOST:PORT with the feature redis;
    /// `dynamodb://HOST:PORT/TABLE` with the feature dynamodb; or any URL of lease-store, such as
    /// `sqlite:///PATH` with the feature sqlite.
    #[arg(long, env = "LEASE_STORE", default_value = "memory")]
    store: String,
    /// A CSV file of employees and amounts. Without it, a built-in payroll of 24 is used.
    #[arg(long, value_name = "FILE")]
    items: Option<PathBuf>,
    /// The number of workers, 2 to 100.
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    workers: usize,
    /// The ttl of a lease, in seconds.
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", allow_negative_numbers = true)]
    ttl: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    exit("singleton_job", run(Arguments::parse()).await)
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if !(2..=MAX_WORKERS).contains(&arguments.workers) {
        return Err(Failure::from(format!(
            "{} workers are out of range: 2 to {MAX_WORKERS}, since one is killed and another \
             takes over",
            arguments.workers
        )));
    }
    // A wrong address fails here, before any worker starts.
    open(&arguments.store).await?;
    let job = Arc::new(Job::new(&arguments)?);

    let mut processes = JoinSet::new();
    for number in 1..=arguments.workers {
        let job = Arc::clone(&job);
        processes.spawn_blocking(move || process(job, format!("worker-{number}"), None));
    }
    while let Some(ended) = processes.join_next().await {
        // Some workers may wait for the progress of the failed worker, so all stop.
        let ended = ended?.inspect_err(|_failure| job.stop())?;
        if let Ended::Killed { name, unsent } = ended {
            let job = Arc::clone(&job);
            processes.spawn_blocking(move || process(job, name, Some(unsent)));
        }
    }
    Ok(job.verdict())
}

/// A drop of the runtime ends every task of the worker.
fn process(job: Arc<Job>, name: String, unsent: Option<Write>) -> Result<Ended, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (kill, mut killed) = mpsc::channel(1);
    let worker = Worker { name: name.clone(), job, unsent, kill };
    let work = runtime.spawn(worker.work());
    runtime.block_on(async {
        select! {
            biased;
            // The return drops the runtime, with the lease's heartbeats and its release.
            Some(unsent) = killed.recv() => Ok(Ended::Killed { name, unsent }),
            done = work => done?.map(|()| Ended::Done),
        }
    })
}

enum Ended {
    Done,
    Killed { name: String, unsent: Write },
}

#[derive(Debug, Clone, Copy)]
struct Write {
    payment: usize,
    token: FencingToken,
}

struct Job {
    key: LeaseKey,
    store: String,
    options: LeaseOptions,
    payments: Vec<Payment>,
    pace: Duration,
    /// Represents the database, which outlives the workers and compares tokens.
    ledger: Gate<Ledger>,
    refused: AtomicUsize,
    has_killed: AtomicBool,
    /// True when all payments are made, or a worker has failed.
    stopped: watch::Sender<bool>,
    timeline: Timeline,
}

impl Job {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let ttl = Duration::try_from_secs_f64(arguments.ttl)
            .map_err(|_no_length| format!("ttl {:?} is not a length in seconds", arguments.ttl))?;
        let payments = payroll::read(arguments.items.as_deref())?;
        let count = u32::try_from(payments.len()).unwrap_or(u32::MAX);
        Ok(Self {
            key: "payroll".parse()?,
            store: arguments.store.clone(),
            options: LeaseOptions::new(ttl)?,
            pace: MAX_PACE.min(Duration::from_secs(3) / count),
            payments,
            ledger: Gate::default(),
            refused: AtomicUsize::new(0),
            has_killed: AtomicBool::new(false),
            stopped: watch::Sender::new(false),
            timeline: Timeline::start(),
        })
    }

    /// Returns true once, for the first worker that reaches 40 % of the payments.
    fn kills_at(&self, payment: usize) -> bool {
        payment == self.payments.len() * 2 / 5 && !self.has_killed.swap(true, Ordering::SeqCst)
    }

    fn stop(&self) {
        self.stopped.send_replace(true);
    }

    async fn is_stopped(&self) {
        // `wait_for` cannot fail, since `self` owns the sender.
        drop(self.stopped.subscribe().wait_for(|stopped| *stopped).await);
    }

    /// Completes when the ledger has seen a token larger than `token`.
    async fn is_taken_over(&self, token: FencingToken) {
        while self.ledger.largest() <= Some(token) {
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn verdict(&self) -> ExitCode {
        let count = self.payments.len();
        let (wrong, shares) = self.ledger.read(|ledger| (ledger.wrong(count), ledger.shares()));
        let refused = self.refused.load(Ordering::SeqCst);
        print_line("");
        for (token, share) in &shares {
            print_line(format_args!("token {token}: {share} payments accepted"));
        }
        for payment in wrong.iter().filter_map(|number| self.payments.get(*number)) {
            print_line(format_args!("not accepted exactly once: {payment}"));
        }
        let (verdict, code) = if wrong.is_empty() && refused > 0 {
            ("each payment was accepted exactly once", ExitCode::SUCCESS)
        } else {
            ("FAILED", ExitCode::FAILURE)
        };
        print_line(format_args!(
            "verdict: {verdict}; payments: {count}, wrong: {}, late writes refused: {refused}",
            wrong.len()
        ));
        code
    }
}

struct Worker {
    name: String,
    job: Arc<Job>,
    /// The write that this worker had not sent when it was killed.
    unsent: Option<Write>,
    kill: mpsc::Sender<Write>,
}

impl Worker {
    async fn work(self) -> Result<(), Failure> {
        let job = &self.job;
        let locker = Locker::new(open(&job.store).await?)
            .with_lessee(Lessee::new(self.name.as_str())?)
            .with_options(job.options.clone());
        if let Some(write) = self.unsent {
            self.write_late(write).await;
        }
        loop {
            let lease = select! {
                biased;
                // The waiting future may be dropped at any time.
                () = job.is_stopped() => break,
                lease = locker.wait_until_obtained(&job.key) => lease?,
            };
            let token = lease.token();
            self.print(token, "obtained the lease");
            match lease.run_until_lost(self.pay(token)).await {
                Ok(Ok(())) => {
                    // The waiting workers stop before the release, so that none of them obtains the
                    // lease.
                    job.stop();
                    lease.release().await?;
                    self.print(token, "released the lease: all payments are made");
                    break;
                }
                Ok(Err(stale)) => self.print(token, stale),
                Err(lost) => self.print(token, lost),
            }
        }
        locker.close().await;
        Ok(())
    }

    async fn pay(&self, token: FencingToken) -> Result<(), Stale> {
        // Reads the position by a write under the new token. Afterwards, the gate refuses the
        // previous holder, so the position in the ledger cannot change.
        let next = self.job.ledger.write(token, |ledger| ledger.next())?;
        if next > 0 {
            self.print(token, format_args!("continues after {next} payments"));
        }
        for (number, payment) in self.job.payments.iter().enumerate().skip(next) {
            sleep(self.job.pace).await;
            let write = Write { payment: number, token };
            if self.job.kills_at(number) {
                self.print(token, "KILLED before it sends the next payment");
                self.die(write).await;
            }
            self.write(write)?;
            self.print(token, format_args!("paid {payment}"));
        }
        Ok(())
    }

    fn write(&self, Write { payment, token }: Write) -> Result<(), Stale> {
        self.job.ledger.write(token, |ledger| ledger.accept(payment, token))
    }

    /// Sends the write that was pending at the kill, like a program that replays a journal.
    async fn write_late(&self, write: Write) {
        select! {
            biased;
            () = self.job.is_taken_over(write.token) => (),
            () = self.job.is_stopped() => return,
        }
        self.print(write.token, "restarted, sends its pending payment");
        if let Err(stale) = self.write(write) {
            self.job.refused.fetch_add(1, Ordering::SeqCst);
            self.print(write.token, format_args!("REFUSED by the ledger: {stale}"));
        }
    }

    /// Never returns: the process kills this worker.
    async fn die(&self, unsent: Write) {
        let _ = self.kill.send(unsent).await;
        pending::<()>().await;
    }

    fn print(&self, token: FencingToken, event: impl std::fmt::Display) {
        self.job.timeline.print(&self.name, Some(token), event);
    }
}

const MAX_WORKERS: usize = 100;
/// The maximum duration of one payment: long enough to read the output.
const MAX_PACE: Duration = Duration::from_millis(120);
