//! Claims of held keys should write nothing.

use lease_core::store::{LockStore, Obtained};
use lease_test_servers::postgres::PostgresServer;

use crate::{claim, obtain, store};

pub(crate) async fn measure(server: &PostgresServer) {
    let store = store(server).await;
    obtain(&store, "job").await;
    server.command("SELECT pg_stat_statements_reset()");
    for _ in 0..REFUSALS {
        let answer = store.obtain(&claim("job")).await.unwrap();
        assert!(matches!(answer, Obtained::Held(_)), "{answer:?}");
    }
    let written = server.command(
        "SELECT sum(calls), sum(wal_bytes), sum(wal_records) FROM pg_stat_statements
         WHERE query LIKE '%INSERT INTO \"lease\"%'",
    );
    println!("\nrefusals, WAL bytes, WAL records: {written}");
}

const REFUSALS: usize = 10_000;
