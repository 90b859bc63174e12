//! Processes that share a file: they contend for a key while others are killed, and their wall clocks differ.
//!
//! A worker process is this program again, with the test [`worker`] selected. Workers write to a [`GateLog`]
//! under their tokens, and it judges them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lease_core::store::micros_since_1970;
use lease_core::{FencingToken, LeaseOptions, Locker};
use lease_sqlite::SqliteStore;
use lease_test_servers::gate_log::{GateLog, Verdict};
use lease_test_servers::tools::libfaketime;
use tempfile::TempDir;
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(2);
/// The limit for progress, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const FOLDER: &str = "LEASE_SQLITE_WORKER_FOLDER";
const SABOTAGE: &str = "LEASE_SQLITE_WORKER_SABOTAGE";

/// A worker process. Dropping it kills it with SIGKILL.
struct Worker(Child);

impl Worker {
    fn command(folder: &Path) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["worker", "--exact", "--ignored", "--nocapture"]).env(FOLDER, folder);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The body of a worker process: obtains the key, writes a few lines under its token, releases it, and repeats.
#[tokio::test]
#[ignore = "a process that other tests start"]
async fn worker() {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut builder =
        SqliteStore::builder(folder.join("leases.db")).with_timeout(Duration::from_secs(60));
    if env::var_os(SABOTAGE).is_some() {
        builder = builder.with_sabotage("obtain", "(l.ends IS NULL OR l.ends <= boot_time())", "1");
    }
    let options = LeaseOptions::new(TTL).unwrap();
    let locker = Locker::new(builder.open().await.unwrap()).with_options(options);
    let log = GateLog::at(&folder);
    loop {
        let lease = locker.wait_until_obtained(&"job".parse().unwrap()).await.unwrap();
        for _line in 0..5 {
            log.write(lease.token(), || lease.is_held());
            sleep(Duration::from_millis(4)).await;
        }
        drop(lease.release().await);
    }
}

/// Eight workers. The worker that wrote last, which probably holds the key, is killed again and again.
async fn contend(folder: &TempDir, sabotage: Option<&str>, kills: usize) -> Verdict {
    let start = || {
        let mut command = Worker::command(folder.path());
        if let Some(sabotage) = sabotage {
            command.env(SABOTAGE, sabotage);
        }
        Worker::start(command)
    };
    let mut workers: Vec<_> = (0..8).map(|_| start()).collect();
    let log = GateLog::at(folder.path());
    for number in 0..kills {
        let before = log.largest();
        // Progress: a later token than before the kill.
        let progress = async {
            while log.largest() <= before {
                sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, progress).await.is_err() {
            return Verdict::Stopped(number);
        }
        let writer = log.last_writer();
        let victim = workers.iter().position(|worker| Some(worker.id()) == writer);
        let victim = victim.unwrap_or(number % workers.len());
        if let Some(worker) = workers.get_mut(victim) {
            *worker = start();
        }
    }
    drop(workers);
    log.verdict()
}

#[tokio::test]
async fn killed_processes_leave_one_holder_and_progress() {
    let folder = tempfile::tempdir().unwrap();

    let verdict = contend(&folder, None, 25).await;

    assert!(matches!(verdict, Verdict::Exclusive { tenures } if tenures >= 25), "{verdict:?}");
}

/// The control: the judge finds two holders if the statement does not look at the lease's end.
#[tokio::test]
async fn judge_finds_two_holders_of_a_broken_statement() {
    let folder = tempfile::tempdir().unwrap();

    let verdict = contend(&folder, Some("obtain"), 3).await;

    assert!(matches!(verdict, Verdict::Overlap(_)), "{verdict:?}");
}

/// libfaketime changes the wall clock of the worker. The kernel's boot time stays.
#[tokio::test]
async fn wall_clock_an_hour_off_changes_no_lease() {
    let Some(library) = libfaketime() else { return };
    for clock in ["+1h", "-1h"] {
        let folder = tempfile::tempdir().unwrap();
        let log = GateLog::at(folder.path());
        let mut command = Worker::command(folder.path());
        command.env("LD_PRELOAD", &library).env("FAKETIME", clock);
        command.env("DONT_FAKE_MONOTONIC", "1");
        let off = Worker::start(command);
        let first = log.waits_for(|token| token > FencingToken::new(0).unwrap(), PATIENCE).await;
        let right = Worker::start(Worker::command(folder.path()));
        // Both processes write in turn, and none of their writes is refused.
        let is_by = |worker: &Worker| {
            let id = worker.id();
            move |log: &GateLog| log.last_writer() == Some(id)
        };
        for _turn in 0..5 {
            log.waits_until(is_by(&right), PATIENCE).await;
            log.waits_until(is_by(&off), PATIENCE).await;
        }
        drop(off);
        log.waits_until(is_by(&right), PATIENCE).await;

        let verdict = log.verdict();
        assert!(matches!(verdict, Verdict::Exclusive { .. }), "{clock}: {verdict:?}");
        let is_ahead = first.get() > micros_since_1970() + 3_000_000_000;
        assert_eq!(is_ahead, clock == "+1h", "the wall clock is not faked: {first}");
    }
}
