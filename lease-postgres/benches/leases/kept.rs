//! Heartbeats of many leases: processor time, write-ahead log, and HOT updates.

use futures_util::StreamExt;
use futures_util::stream;
use lease_core::store::{Beat, Grant, Heartbeat, LockStore};
use lease_test_servers::measure::timed;
use lease_test_servers::postgres::PostgresServer;

use crate::{obtain, store};

pub(crate) async fn measure(server: &PostgresServer, count: usize) {
    let store = store(server).await;
    let claims = (0..count).map(|number| {
        let store = store.clone();
        async move { obtain(&store, &format!("kept-{number}")).await }
    });
    let grants: Vec<Grant> = stream::iter(claims).buffer_unordered(64).collect().await;
    server.command("CHECKPOINT");
    let before = Used::by(server);
    let mut extended = 0;
    let seconds = timed(async {
        for beat in 1..=BEATS {
            let beat = Beat::new(beat);
            let beats: Vec<_> = grants.iter().map(|grant| (grant.clone(), beat)).collect();
            let mut answers = store.heartbeat_all(&beats);
            while let Some((_, answer)) = answers.next().await {
                assert_eq!(answer.unwrap(), Heartbeat::Extended);
                extended += 1;
            }
        }
    });
    let seconds = seconds.await;
    let used = Used::by(server);
    assert_eq!(extended, count * usize::try_from(BEATS).unwrap());
    let each = |before: f64, after: f64| (after - before) / extended as f64;
    println!("\n{count} leases kept, {BEATS} heartbeats each, {seconds:.2} s:");
    println!(
        "| {:.1} µs client | {:.1} µs server | {:.0} bytes of WAL | {:.2} % HOT |",
        each(before.client, used.client) * 1e6,
        each(before.server, used.server) * 1e6,
        each(before.wal, used.wal),
        100.0 * (used.hot - before.hot) / (used.updates - before.updates),
    );
}

/// Processor time in seconds, bytes of the write-ahead log, and updated rows.
struct Used {
    client: f64,
    server: f64,
    wal: f64,
    updates: f64,
    hot: f64,
}

impl Used {
    fn by(server: &PostgresServer) -> Self {
        let number = |sql: &str| server.command(sql).parse::<f64>().unwrap();
        // A backend reports its statistics when it is idle for a second.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let processes = server.command("SELECT pid FROM pg_stat_activity");
        let of_table = "FROM pg_stat_user_tables WHERE relname = 'lease'";
        Self {
            client: processor_time("self"),
            server: processes.lines().map(processor_time).sum(),
            wal: number("SELECT pg_current_wal_insert_lsn() - '0/0'"),
            updates: number(&format!("SELECT n_tup_upd {of_table}")),
            hot: number(&format!("SELECT n_tup_hot_upd {of_table}")),
        }
    }
}

fn processor_time(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

const BEATS: u64 = 5;
