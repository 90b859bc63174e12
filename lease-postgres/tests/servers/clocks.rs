//! Two processes whose wall clocks are an hour apart share a key. A process runs the test [`worker`].

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lease_core::{LeaseOptions, Locker};
use lease_postgres::PostgresStore;
use lease_test_servers::gate_log::worker::{Worker, set_wall_clock};
use lease_test_servers::gate_log::{GateLog, Verdict};
use lease_test_servers::postgres::{PATIENT, PostgresServer};
use lease_test_servers::tools::libfaketime;

use crate::setting::{builder, connected, key};

/// Long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
const URL: &str = "LEASE_POSTGRES_WORKER_URL";
const SABOTAGE: &str = "LEASE_POSTGRES_WORKER_SABOTAGE";

fn command(folder: &Path, server: &PostgresServer) -> Command {
    let mut command = Worker::command("clocks::worker", folder);
    command.env(URL, server.url());
    command
}

#[tokio::test]
#[ignore = "a process that other tests start"]
async fn worker() {
    let (Some(folder), Ok(url)) = (Worker::folder(), env::var(URL)) else { return };
    let mut builder = PostgresStore::builder(url).with_timeout(PATIENT);
    if env::var_os(SABOTAGE).is_some() {
        let ends = "WHERE (l.ends IS NULL OR l.ends <= clock_timestamp())";
        builder = builder.with_altered_statement("obtain", ends, "WHERE true");
        let (gate, open) = ("WHERE NOT EXISTS (", "WHERE true OR NOT EXISTS (");
        builder = builder.with_altered_statement("obtain", gate, open);
    }
    let options = LeaseOptions::new(Duration::from_secs(2)).unwrap();
    let locker = Locker::new(builder.connect().await.unwrap()).with_options(options);
    Worker::write_under_leases(locker, key(), GateLog::at(&folder)).await;
}

#[tokio::test]
async fn wall_clocks_an_hour_apart_change_no_lease() {
    let Some(library) = libfaketime() else { return };
    let Some(server) = PostgresServer::start() else { return };
    drop(connected(builder(&server)).await);
    for clock in ["+1h", "-1h"] {
        let folder = tempfile::tempdir().unwrap();
        let log = GateLog::at(folder.path());
        let mut skewed = command(folder.path(), &server);
        set_wall_clock(&mut skewed, &library, clock);

        let off = Worker::start(skewed);
        let right = Worker::start(command(folder.path(), &server));

        log.waits_for_turns(&right, &off, LIMIT).await;
        drop(off);
        log.waits_until(|log| right.wrote_last(log), LIMIT).await;
        let verdict = log.verdict();
        assert!(matches!(verdict, Verdict::Exclusive { .. }), "{clock}: {verdict:?}");
    }
}

#[tokio::test]
async fn judge_finds_two_holders_of_a_broken_statement() {
    let Some(server) = PostgresServer::start() else { return };
    drop(connected(builder(&server)).await);
    let folder = tempfile::tempdir().unwrap();
    let log = GateLog::at(folder.path());
    let start = || {
        let mut broken = command(folder.path(), &server);
        broken.env(SABOTAGE, "1");
        Worker::start(broken)
    };

    let workers = [start(), start()];

    log.waits_for_overlap(LIMIT).await;
    drop(workers);
}
