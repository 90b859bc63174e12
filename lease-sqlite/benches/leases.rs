//! Compares leases, and the start on a new file, with bare statements. Also measures hand-overs.
//!
//! `cargo bench -p lease-sqlite` prints the medians of alternating runs, and the quartiles of their ratio.
//! The file is in `LEASE_BENCH_FOLDER`, or else in the folder for temporary files, which may be in memory.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a failed setup ends the benchmark, which prints its results"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use lease_core::store::{Claim, Grant, LockStore, Nonce, Obtained};
use lease_core::{LeaseOptions, Locker};
use lease_sqlite::SqliteStore;
use lease_test_servers::measure::{is_measuring, median, timed};
use rusqlite::{Connection, params};

const RUNS: usize = 15;
const CYCLES: usize = 100;
const TTL: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if !is_measuring() {
        return;
    }
    let parent =
        std::env::var_os("LEASE_BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(parent).unwrap();
    for tasks in [1, 64] {
        uncontended(folder.path(), tasks).await;
    }
    start_to_first_grant(folder.path()).await;
    hand_over(folder.path()).await;
}

#[expect(clippy::future_not_send, reason = "it runs on the main thread")]
async fn uncontended(folder: &Path, tasks: usize) {
    let store = SqliteStore::open(folder.join(format!("leases-{tasks}.db"))).await.unwrap();
    let bare = Bare::open(&folder.join(format!("bare-{tasks}.db")));
    let rounds = if tasks == 1 { CYCLES } else { CYCLES / 5 };
    let count = (rounds * tasks) as f64;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..=RUNS {
        let all = (0..tasks).map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..rounds {
                    let grant = obtain(&store, &format!("key-{task}")).await;
                    store.release(&grant, None).await.unwrap();
                }
            })
        });
        let our_time = timed(join_all(all)).await;
        let bare_time = timed(async { (0..CYCLES).for_each(|_| bare.obtain_and_release("key")) });
        let bare_time = bare_time.await;
        // The first run fills caches, so it does not count.
        if run > 0 {
            ours.push(count / our_time);
            theirs.push(CYCLES as f64 / bare_time);
        }
    }
    print(&format!("uncontended, {tasks} tasks, obtain + release per second"), &ours, &theirs);
}

async fn start_to_first_grant(folder: &Path) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..30 {
        let path = folder.join(format!("start-{run}.db"));
        let started = async { obtain(&SqliteStore::open(&path).await.unwrap(), "key").await };
        ours.push(timed(started).await * 1000.0);
        let path = folder.join(format!("bare-start-{run}.db"));
        theirs.push(timed(async { start_bare(&path) }).await * 1000.0);
    }
    print("start to first grant on a new file, ms", &ours, &theirs);
}

fn start_bare(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.pragma_update(None, "synchronous", "full").unwrap();
    let tables = include_str!("../src/statements/create_tables.sql");
    let create = format!(
        "BEGIN IMMEDIATE; {tables} PRAGMA application_id = 1; PRAGMA user_version = 1; COMMIT;"
    );
    connection.execute_batch(&create).unwrap();
    let obtain = "INSERT INTO lease (key, boot, token, nonce, lessee, ttl, ends, beat, record)
        VALUES ('key', 'boot', 1, 'nonce', 'a', 1, 1, 0, 'temporary')";
    connection.execute(obtain, []).unwrap();
}

fn print(what: &str, ours: &[f64], bare: &[f64]) {
    let mut ratios: Vec<_> = ours.iter().zip(bare).map(|(one, bare)| one / bare).collect();
    ratios.sort_by(f64::total_cmp);
    let quartile = |part: usize| ratios.get(ratios.len() * part / 4).unwrap();
    println!(
        "{what}: {:.1}, bare {:.1}, ratio {:.2} ({:.2} to {:.2})",
        median(ours.to_vec()),
        median(bare.to_vec()),
        quartile(2),
        quartile(1),
        quartile(3),
    );
}

/// Measures the time from the call of a release to the waiter's grant.
async fn hand_over(folder: &Path) {
    let path = folder.join("hand-over.db");
    let options = LeaseOptions::new(TTL).unwrap();
    let mut lockers = Vec::new();
    for _ in 0..2 {
        lockers.push(
            Locker::new(SqliteStore::open(&path).await.unwrap()).with_options(options.clone()),
        );
    }
    let key = "job".parse().unwrap();
    let mut held = lockers.first().unwrap().wait_until_obtained(&key).await.unwrap();
    let mut times = Vec::new();
    for round in 1..200 {
        let (locker, key) = (lockers.get(round % 2).unwrap().clone(), key.clone());
        let waiting = tokio::spawn(async move { locker.wait_until_obtained(&key).await.unwrap() });
        // The waiter registers during this pause.
        tokio::time::sleep(Duration::from_millis(30)).await;
        let mut next = None;
        times.push(
            timed(async {
                held.release().await.unwrap();
                next = Some(waiting.await.unwrap());
            })
            .await,
        );
        held = next.unwrap();
    }
    println!("hand-over between two handles: {:.2} ms", median(times) * 1000.0);
}

async fn obtain(store: &SqliteStore, key: &str) -> Grant {
    let claim = Claim::new(key.parse().unwrap(), "a".parse().unwrap(), Nonce::random(), TTL);
    match store.obtain(&claim).await.unwrap() {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    }
}

struct Bare(Connection);

impl Bare {
    fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection.pragma_update(None, "synchronous", "full").unwrap();
        connection
            .execute_batch(
                "CREATE TABLE lock (key TEXT PRIMARY KEY, token INTEGER, owner TEXT, ends INTEGER)",
            )
            .unwrap();
        Self(connection)
    }

    fn obtain_and_release(&self, key: &str) {
        let obtain = "INSERT INTO lock (key, token, owner, ends) VALUES (?1, 1, ?2, unixepoch() + 30)
            ON CONFLICT (key) DO UPDATE SET token = token + 1, owner = excluded.owner, ends = excluded.ends
            WHERE owner IS NULL OR ends < unixepoch()";
        let release = "UPDATE lock SET owner = NULL WHERE key = ?1 AND owner = ?2";
        for sql in [obtain, release] {
            let written = self.0.prepare_cached(sql).unwrap().execute(params![key, "a"]).unwrap();
            assert_eq!(written, 1, "{sql}");
        }
    }
}
