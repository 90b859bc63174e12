//! Several workers, one job: one worker is killed, another takes over, nothing is done twice.
//!
//! Each worker lives on a thread and a runtime of its own, as it would in a process of its own.
//! Killing one drops its runtime: its heartbeats stop, and its lease is not released.

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
use lease_examples::{Failure, Timeline, end, open, show};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio::{runtime, select};

/// Pays everybody once, although a worker is killed half-way.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where leases are kept.
    #[arg(long, default_value = "memory")]
    store: String,
    /// Whom to pay: a CSV file of employees and amounts. A payroll of 24 comes along.
    #[arg(long, value_name = "FILE")]
    items: Option<PathBuf>,
    /// How many workers there are.
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    workers: usize,
    /// How long a lease lasts without a heartbeat, in seconds.
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", allow_negative_numbers = true)]
    ttl: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    end("singleton_job", run(Arguments::parse()).await)
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if !(2..=MOST_WORKERS).contains(&arguments.workers) {
        return Err(Failure::from(format!(
            "{} workers are out of range: 2 to {MOST_WORKERS}, since one is killed and another \
             takes over",
            arguments.workers
        )));
    }
    // Opened once here, so that a wrong address is told before anything starts.
    open(&arguments.store).await?;
    let job = Arc::new(Job::new(&arguments)?);

    let mut processes = JoinSet::new();
    for number in 1..=arguments.workers {
        let job = Arc::clone(&job);
        processes.spawn_blocking(move || process(job, format!("worker-{number}"), None));
    }
    while let Some(ended) = processes.join_next().await {
        // Whoever waits for a worker that failed would wait for ever.
        let ended = ended?.inspect_err(|_failure| job.stop())?;
        if let Ended::Killed { name, unsent } = ended {
            let job = Arc::clone(&job);
            processes.spawn_blocking(move || process(job, name, Some(unsent)));
        }
    }
    Ok(job.verdict())
}

/// Runs a worker as a process of its own: nothing that it started outlives this.
fn process(job: Arc<Job>, name: String, unsent: Option<Write>) -> Result<Ended, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (kill, mut killed) = mpsc::channel(1);
    let worker = Worker { name: name.clone(), job, unsent, kill };
    let work = runtime.spawn(worker.work());
    runtime.block_on(async {
        select! {
            biased;
            // The runtime is dropped with everything on it: whoever holds the lease has no time
            // to release it, and nobody sends its heartbeats any more.
            Some(unsent) = killed.recv() => Ok(Ended::Killed { name, unsent }),
            done = work => done?.map(|()| Ended::Done),
        }
    })
}

/// How a process ended.
enum Ended {
    Done,
    Killed { name: String, unsent: Write },
}

/// A payment on its way to the ledger.
#[derive(Debug, Clone, Copy)]
struct Write {
    payment: usize,
    token: FencingToken,
}

/// What all workers know of.
struct Job {
    key: LeaseKey,
    store: String,
    options: LeaseOptions,
    payments: Vec<Payment>,
    /// How long one payment takes.
    pace: Duration,
    /// Stands for the database: outside of all workers, and knows only tokens.
    ledger: Gate<Ledger>,
    refused: AtomicUsize,
    somebody_was_killed: AtomicBool,
    /// Everybody is paid, or a worker failed.
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
            pace: LONGEST_PACE.min(Duration::from_secs(3) / count),
            payments,
            ledger: Gate::default(),
            refused: AtomicUsize::new(0),
            somebody_was_killed: AtomicBool::new(false),
            stopped: watch::Sender::new(false),
            timeline: Timeline::start(),
        })
    }

    /// Whether whoever makes `payment` is to be killed first: the first to come so far.
    fn kills_at(&self, payment: usize) -> bool {
        payment == self.payments.len() * 2 / 5
            && !self.somebody_was_killed.swap(true, Ordering::SeqCst)
    }

    fn stop(&self) {
        self.stopped.send_replace(true);
    }

    async fn is_stopped(&self) {
        // The sender is `self`: it outlives this.
        drop(self.stopped.subscribe().wait_for(|stopped| *stopped).await);
    }

    /// Completes when somebody has written under a larger token than `token`.
    async fn is_taken_over(&self, token: FencingToken) {
        while self.ledger.largest() <= Some(token) {
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn verdict(&self) -> ExitCode {
        let count = self.payments.len();
        let (wrong, shares) = self.ledger.read(|ledger| (ledger.wrong(count), ledger.shares()));
        let refused = self.refused.load(Ordering::SeqCst);
        show("");
        for (token, share) in &shares {
            show(format_args!("token {token}: {share} payments accepted"));
        }
        for payment in wrong.iter().filter_map(|number| self.payments.get(*number)) {
            show(format_args!("not accepted exactly once: {payment}"));
        }
        let (verdict, code) = if wrong.is_empty() && refused > 0 {
            ("each payment was accepted exactly once", ExitCode::SUCCESS)
        } else {
            ("FAILED", ExitCode::FAILURE)
        };
        show(format_args!(
            "verdict: {verdict}; payments: {count}, wrong: {}, late writes refused: {refused}",
            wrong.len()
        ));
        code
    }
}

struct Worker {
    name: String,
    job: Arc<Job>,
    /// What a former life did not get to write.
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
                // Leaving the line is safe at any time: a future that waits may be dropped.
                () = job.is_stopped() => break,
                lease = locker.wait_until_obtained(&job.key) => lease?,
            };
            let token = lease.token();
            self.tell(token, "obtained the lease");
            match lease.run_until_lost(self.pay(token)).await {
                Ok(Ok(())) => {
                    // First, so that nobody who waits obtains it for nothing.
                    job.stop();
                    lease.release().await?;
                    self.tell(token, "released the lease: everybody is paid");
                    break;
                }
                Ok(Err(stale)) => self.tell(token, stale),
                Err(lost) => self.tell(token, lost),
            }
        }
        locker.close().await;
        Ok(())
    }

    /// Makes all payments that were not made yet.
    async fn pay(&self, token: FencingToken) -> Result<(), Stale> {
        // A write, not a read: from here on the gate refuses our predecessor, so what we find
        // in the ledger stays true.
        let next = self.job.ledger.write(token, |ledger| ledger.next())?;
        if next > 0 {
            self.tell(token, format_args!("takes over: {next} payments were made"));
        }
        for (number, payment) in self.job.payments.iter().enumerate().skip(next) {
            sleep(self.job.pace).await;
            let write = Write { payment: number, token };
            if self.job.kills_at(number) {
                self.tell(token, "KILLED with a payment in its hands");
                self.die(write).await;
            }
            self.write(write)?;
            self.tell(token, format_args!("paid {payment}"));
        }
        Ok(())
    }

    fn write(&self, Write { payment, token }: Write) -> Result<(), Stale> {
        self.job.ledger.write(token, |ledger| ledger.accept(payment, token))
    }

    /// Sends what it could not send before it was killed, as a program does that keeps a journal
    /// and trusts it.
    async fn write_late(&self, write: Write) {
        select! {
            biased;
            () = self.job.is_taken_over(write.token) => (),
            () = self.job.is_stopped() => return,
        }
        self.tell(write.token, "restarted, sends the payment it had in hand");
        if let Err(stale) = self.write(write) {
            self.job.refused.fetch_add(1, Ordering::SeqCst);
            self.tell(write.token, format_args!("REFUSED by the gate: {stale}"));
        }
    }

    /// Has this process killed, and waits for that.
    async fn die(&self, unsent: Write) {
        let _ = self.kill.send(unsent).await;
        pending::<()>().await;
    }

    fn tell(&self, token: FencingToken, what: impl std::fmt::Display) {
        self.job.timeline.tell(&self.name, Some(token), what);
    }
}

const MOST_WORKERS: usize = 100;
/// Slow enough for the eye to follow.
const LONGEST_PACE: Duration = Duration::from_millis(120);
