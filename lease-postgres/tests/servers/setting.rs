//! A server with a table, and a store on it.

use std::time::Duration;

use lease_core::LeaseKey;
use lease_postgres::{PostgresStore, PostgresStoreBuilder};
use lease_test_servers::postgres::{PATIENT, PostgresServer};
use tokio_postgres::{Client, NoTls};

/// No test outlasts this ttl.
pub(crate) const TTL: Duration = Duration::from_secs(600);

pub(crate) fn key() -> LeaseKey {
    "job".parse().unwrap()
}

pub(crate) async fn setting() -> Option<(PostgresServer, PostgresStore)> {
    let server = PostgresServer::start()?;
    let store = connected(builder(&server)).await;
    Some((server, store))
}

pub(crate) fn builder(server: &PostgresServer) -> PostgresStoreBuilder {
    PostgresStore::builder(server.url()).with_timeout(PATIENT)
}

pub(crate) async fn connected(builder: PostgresStoreBuilder) -> PostgresStore {
    builder.create_table().await.unwrap();
    builder.connect().await.unwrap()
}

pub(crate) async fn session(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) async fn waiting_for_locks(session: &Client, count: i64) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    lease_test_servers::claims::eventually("sessions wait for a lock", async || {
        let row = session.query_one(sql, &[]).await.unwrap();
        (row.get::<_, i64>(0) >= count).then_some(())
    })
    .await;
}
