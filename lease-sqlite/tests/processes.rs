//! Processes that share a file: they contend for a key while others are killed, and their wall
//! clocks differ.
//!
//! A worker process is this program, with the test [`worker`] selected. The [`GateLog`] shows
//! whether two workers held the key at the same time.

use std::env;
use std::time::Duration;

use lease_core::store::micros_since_1970;
use lease_core::{FencingToken, LeaseOptions, Locker};
use lease_sqlite::SqliteStore;
use lease_test_servers::gate_log::worker::{Worker, set_wall_clock};
use lease_test_servers::gate_log::{GateLog, Verdict};
use lease_test_servers::tools::libfaketime;
use tempfile::TempDir;
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(2);
/// A busy machine needs much less.
const PATIENCE: Duration = Duration::from_secs(300);
const SABOTAGE: &str = "LEASE_SQLITE_WORKER_SABOTAGE";

#[tokio::test]
#[ignore = "a process that other tests start"]
async fn worker() {
    let Some(folder) = Worker::folder() else { return };
    let mut builder =
        SqliteStore::builder(folder.join("leases.db")).with_timeout(Duration::from_secs(60));
    if env::var_os(SABOTAGE).is_some() {
        builder = builder.with_sabotage("obtain", "(l.ends IS NULL OR l.ends <= boot_time())", "1");
    }
    let options = LeaseOptions::new(TTL).unwrap();
    let locker = Locker::new(builder.open().await.unwrap()).with_options(options);
    Worker::write_under_leases(locker, "job".parse().unwrap(), GateLog::at(&folder)).await;
}

/// Kills the worker that wrote last, which probably holds the key.
async fn contend(folder: &TempDir, kills: usize) -> Verdict {
    let start = || Worker::start(Worker::command("worker", folder.path()));
    let mut workers: Vec<_> = (0..8).map(|_| start()).collect();
    let log = GateLog::at(folder.path());
    for number in 0..kills {
        let before = log.largest();
        let progress = async {
            while log.largest() <= before {
                sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, progress).await.is_err() {
            return Verdict::Stopped(number);
        }
        let victim = workers.iter().position(|worker| worker.wrote_last(&log));
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

    let verdict = contend(&folder, 25).await;

    assert!(matches!(verdict, Verdict::Exclusive { tenures } if tenures >= 25), "{verdict:?}");
}

#[tokio::test]
async fn judge_finds_two_holders_of_a_broken_statement() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Worker::command("worker", folder.path());
        command.env(SABOTAGE, "1");
        Worker::start(command)
    };

    let workers = [start(), start()];

    GateLog::at(folder.path()).waits_for_overlap(PATIENCE).await;
    drop(workers);
}

/// libfaketime changes the wall clock of the worker, but not the kernel's boot time.
#[tokio::test]
async fn wall_clock_an_hour_off_changes_no_lease() {
    let Some(library) = libfaketime() else { return };
    for clock in ["+1h", "-1h"] {
        let folder = tempfile::tempdir().unwrap();
        let log = GateLog::at(folder.path());
        let mut command = Worker::command("worker", folder.path());
        set_wall_clock(&mut command, &library, clock);
        let off = Worker::start(command);
        let first = log.waits_for(|token| token > FencingToken::new(0).unwrap(), PATIENCE).await;
        let right = Worker::start(Worker::command("worker", folder.path()));
        log.waits_for_turns(&right, &off, PATIENCE).await;
        drop(off);
        log.waits_until(|log| right.wrote_last(log), PATIENCE).await;

        let verdict = log.verdict();
        assert!(matches!(verdict, Verdict::Exclusive { .. }), "{clock}: {verdict:?}");
        let is_ahead = first.get() > micros_since_1970() + 3_000_000_000;
        assert_eq!(is_ahead, clock == "+1h", "the wall clock is not faked: {first}");
    }
}
