//! Measures leases against bare statements over the same driver: `cargo bench -p lease-postgres`.
//! Arguments select measurements by name.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a failed setup ends the benchmark, which prints its results"
)]

mod contestants;
mod cycles;
mod hand_off;
mod kept;
mod refusals;

use std::time::Duration;

use lease_core::store::{Claim, Grant, LockStore, Nonce, Obtained};
use lease_postgres::PostgresStore;
use lease_test_servers::measure::is_measuring;
use lease_test_servers::postgres::{PATIENT, PostgresServer};

const TTL: Duration = Duration::from_secs(600);
const CONNECTIONS: usize = 8;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if !is_measuring() {
        return;
    }
    let names: Vec<_> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let is_selected = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
    for fsync in ["fsync=on", "fsync=off"] {
        if is_selected("cycles") {
            let server = server(fsync);
            for tasks in [1, 64] {
                cycles::measure(&server, fsync, tasks).await;
            }
        }
    }
    if is_selected("hand-off") {
        for waiters in [8, 64] {
            hand_off::measure(&server("fsync=on"), waiters).await;
        }
    }
    if is_selected("refusals") {
        refusals::measure(&server("fsync=on")).await;
    }
    for count in [10_000, 100_000] {
        if is_selected("kept") {
            kept::measure(&server("fsync=on"), count).await;
        }
    }
}

fn server(fsync: &str) -> PostgresServer {
    let settings = [
        fsync,
        "shared_preload_libraries=pg_stat_statements",
        "shared_buffers=256MB",
        "max_wal_size=4GB",
        "autovacuum_naptime=5",
    ];
    let server = PostgresServer::with(&settings).unwrap();
    server.command("CREATE EXTENSION pg_stat_statements");
    server
}

async fn store(server: &PostgresServer) -> PostgresStore {
    let builder = PostgresStore::builder(server.url()).with_connections(CONNECTIONS);
    let builder = builder.with_timeout(PATIENT);
    builder.create_table().await.unwrap();
    builder.connect().await.unwrap()
}

fn claim(key: &str) -> Claim {
    Claim::new(key.parse().unwrap(), "a".parse().unwrap(), Nonce::random(), TTL)
}

async fn obtain(store: &PostgresStore, key: &str) -> Grant {
    match store.obtain(&claim(key)).await.unwrap() {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    }
}
