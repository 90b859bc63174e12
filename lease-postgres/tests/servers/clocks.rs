//! Two processes whose wall clocks are an hour apart share a key.
//!
//! A worker process is this program again, with the test [`worker`] selected.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lease_core::{LeaseOptions, Locker};
use lease_postgres::PostgresStore;
use lease_test_servers::gate_log::{GateLog, Verdict};
use lease_test_servers::postgres::{PATIENT, PostgresServer};
use lease_test_servers::tools::libfaketime;
use tokio::time::sleep;

use crate::setting::{builder, connected, key};

/// The limit for progress, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
const FOLDER: &str = "LEASE_POSTGRES_WORKER_FOLDER";
const URL: &str = "LEASE_POSTGRES_WORKER_URL";
const SABOTAGE: &str = "LEASE_POSTGRES_WORKER_SABOTAGE";

/// A worker process. Dropping it kills it with SIGKILL.
struct Worker(Child);

impl Worker {
    fn command(folder: &Path, server: &PostgresServer) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["clocks::worker", "--exact", "--ignored", "--nocapture"]);
        command.env(FOLDER, folder).env(URL, server.url());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn wrote_last(&self, log: &GateLog) -> bool {
        log.last_writer() == Some(self.0.id())
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
    let (Some(folder), Ok(url)) = (env::var_os(FOLDER), env::var(URL)) else { return };
    let mut builder = PostgresStore::builder(url).with_timeout(PATIENT);
    if env::var_os(SABOTAGE).is_some() {
        let ends = "WHERE (l.ends IS NULL OR l.ends <= clock_timestamp())";
        builder = builder.with_altered_statement("obtain", ends, "WHERE true");
        let (gate, open) = ("WHERE NOT EXISTS (", "WHERE true OR NOT EXISTS (");
        builder = builder.with_altered_statement("obtain", gate, open);
    }
    let options = LeaseOptions::new(Duration::from_secs(2)).unwrap();
    let locker = Locker::new(builder.connect().await.unwrap()).with_options(options);
    let log = GateLog::at(&PathBuf::from(folder));
    loop {
        let lease = locker.wait_until_obtained(&key()).await.unwrap();
        for _line in 0..5 {
            log.write(lease.token(), || lease.is_held());
            sleep(Duration::from_millis(4)).await;
        }
        drop(lease.release().await);
    }
}

#[tokio::test]
async fn wall_clocks_an_hour_apart_change_no_lease() {
    let Some(library) = libfaketime() else { return };
    let Some(server) = PostgresServer::start() else { return };
    drop(connected(builder(&server)).await);
    for clock in ["+1h", "-1h"] {
        let folder = tempfile::tempdir().unwrap();
        let log = GateLog::at(folder.path());
        let mut command = Worker::command(folder.path(), &server);
        command.env("LD_PRELOAD", &library).env("FAKETIME", clock);
        command.env("DONT_FAKE_MONOTONIC", "1");

        let off = Worker::start(command);
        let right = Worker::start(Worker::command(folder.path(), &server));

        // Both write in turn, and none of their writes is refused.
        for _turn in 0..5 {
            log.waits_until(|log| right.wrote_last(log), LIMIT).await;
            log.waits_until(|log| off.wrote_last(log), LIMIT).await;
        }
        drop(off);
        log.waits_until(|log| right.wrote_last(log), LIMIT).await;
        let verdict = log.verdict();
        assert!(matches!(verdict, Verdict::Exclusive { .. }), "{clock}: {verdict:?}");
    }
}

/// The control: the judge finds two holders if the statement does not look at the lease's end.
#[tokio::test]
async fn judge_finds_two_holders_of_a_broken_statement() {
    let Some(server) = PostgresServer::start() else { return };
    drop(connected(builder(&server)).await);
    let folder = tempfile::tempdir().unwrap();
    let log = GateLog::at(folder.path());
    let start = || {
        let mut command = Worker::command(folder.path(), &server);
        command.env(SABOTAGE, "1");
        Worker::start(command)
    };

    let workers = [start(), start()];

    log.waits_until(|log| matches!(log.verdict(), Verdict::Overlap(_)), LIMIT).await;
    drop(workers);
}
