//! Servers and tables with wrong settings: `connect` fails, and its error has advice.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::time::Duration;

use lease_core::store::{Beat, Grant, Heartbeat, LockStore};
use lease_core::{LeaseKey, StoreError, StoreErrorKind};
use lease_postgres::{PostgresStore, PostgresStoreBuilder};
use lease_test_servers::claims::{claim, eventually, obtain, soon};
use lease_test_servers::postgres::{PATIENT, PostgresServer};
use lease_test_servers::warnings::Warnings;
use tokio_postgres::{Client, NoTls};

use StoreErrorKind::{Denied, Misconfigured, Unavailable};

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(
    refused: Result<T, StoreError>,
    kind: StoreErrorKind,
    what: &str,
) {
    let error = refused.unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();

    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(what), "{text}");
    assert!(!text.contains("secret"), "the password is printed: {text}");
    assert!(![".:", ": :", "..", ".;"].iter().any(|doubled| text.contains(doubled)), "{text}");
}

fn builder(server: &PostgresServer) -> PostgresStoreBuilder {
    PostgresStore::builder(server.url()).with_timeout(PATIENT)
}

/// The password of the role `leases` is `secret`.
async fn server_with_role() -> Option<PostgresServer> {
    let server = PostgresServer::start()?;
    builder(&server).create_table().await.unwrap();
    server.command("CREATE ROLE leases LOGIN PASSWORD 'secret'");
    server.require_passwords();
    Some(server)
}

#[tokio::test]
async fn missing_table_is_refused_and_can_be_created() {
    let Some(server) = PostgresServer::start() else { return };
    let builder = builder(&server);
    assert_refused(builder.clone().connect().await, Misconfigured, "has no table \"lease\"");
    let elsewhere = builder.clone().with_table("nowhere.lease");
    assert_refused(elsewhere.connect().await, Misconfigured, "has no table");

    let creating = (0..8).map(|_| builder.create_table());
    for created in futures_util::future::join_all(creating).await {
        created.unwrap();
    }

    builder.connect().await.unwrap();
}

/// The columns that later versions have added.
const ADDED: [&str; 3] = ["parent", "parent_token", "queue"];

#[tokio::test]
async fn older_table_is_refused_until_it_is_upgraded() {
    let Some(server) = PostgresServer::start() else { return };
    let builder = builder(&server);
    builder.create_table().await.unwrap();
    let key: LeaseKey = "job".parse().unwrap();
    let store = builder.clone().connect().await.unwrap();
    let grant = obtain(&store, &key, "a", PATIENT).await;
    drop(store);
    let readme = include_str!("../README.md");
    let (_, sql) = readme.split_once("```sql\nBEGIN;").unwrap();
    let documented = format!("BEGIN;{}", sql.split_once("```").unwrap().0);
    for upgrade in ["create_table", "documented"] {
        for column in ADDED {
            server.command(&format!("ALTER TABLE lease DROP COLUMN {column}"));
        }
        assert_refused(builder.clone().connect().await, Misconfigured, "An older table");

        match upgrade {
            "documented" => drop(server.command(&documented)),
            _ => builder.create_table().await.unwrap(),
        }

        let store = builder.clone().connect().await.unwrap();
        let holder = store.holder(&key).await.unwrap();
        assert_eq!(holder.and_then(|holder| holder.token), Some(grant.token), "{upgrade}");
    }
}

/// A statement that waits for the lock of the table blocks all later statements.
#[tokio::test]
async fn upgrade_behind_a_reader_stops_no_heartbeat() {
    let Some(server) = PostgresServer::start() else { return };
    let patient = builder(&server).with_timeout(Duration::from_secs(300));
    patient.create_table().await.unwrap();
    let key: LeaseKey = "job".parse().unwrap();
    let store = builder(&server).connect().await.unwrap();
    let grant = obtain(&store, &key, "a", Duration::from_secs(600)).await;
    server.command("ALTER TABLE lease DROP COLUMN queue");
    let [reader, watching] = [session(&server).await, session(&server).await];
    reader.batch_execute("BEGIN; SELECT FROM lease").await.unwrap();
    let upgrade = tokio::spawn(async move { patient.create_table().await });

    for number in 1..=3 {
        is_upgrading(&watching).await;
        let beat = store.heartbeat(&grant, Beat::new(number)).await;
        assert_eq!(beat.unwrap(), Heartbeat::Extended);
    }

    assert!(!upgrade.is_finished(), "the reader prevents the upgrade");
    reader.batch_execute("COMMIT").await.unwrap();
    soon(upgrade).await.unwrap().unwrap();
    builder(&server).connect().await.unwrap();
}

async fn session(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn is_upgrading(watching: &Client) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
        AND query LIKE '%ADD COLUMN%'";
    eventually("the upgrade waits", async || {
        let row = watching.query_one(sql, &[]).await.unwrap();
        (row.get::<_, i64>(0) > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn table_that_is_dropped_later_is_reported_with_advice() {
    let Some(server) = PostgresServer::start() else { return };
    let builder = builder(&server);
    builder.create_table().await.unwrap();
    let store = builder.connect().await.unwrap();

    server.command("DROP TABLE lease");

    let key: LeaseKey = "job".parse().unwrap();
    let lost = store.obtain(&claim(&key, "a", PATIENT)).await;
    assert_refused(lost, Misconfigured, "create the table by `create_table`");
}

#[tokio::test]
async fn documented_rights_suffice_and_missing_right_is_named() {
    let Some(server) = server_with_role().await else { return };
    let url = server.url_of("leases:secret", "postgres");
    let connect = || PostgresStore::builder(&url).with_timeout(PATIENT).connect();
    assert_refused(connect().await, Denied, "GRANT SELECT, INSERT, UPDATE ON \"lease\"");
    server.command("GRANT SELECT, UPDATE ON lease TO leases");
    assert_refused(connect().await, Denied, "GRANT INSERT ON \"lease\"");

    let readme = include_str!("../README.md");
    let rights = readme.lines().find(|line| line.starts_with("GRANT SELECT, INSERT, UPDATE"));
    server.command(rights.unwrap());

    let store = connect().await.unwrap();
    let key: LeaseKey = "job".parse().unwrap();
    let grant: Grant = obtain(&store, &key, "a", PATIENT).await;
    let freed = store.watch(&key).await.unwrap();
    assert!(freed.can_wake());
    let beat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);
    store.release(&grant, None).await.unwrap();
    assert_refused(store.purge(Duration::ZERO).await, Denied, "Access rights");
}

#[tokio::test]
async fn wrong_login_is_denied_without_its_password() {
    let Some(server) = server_with_role().await else { return };
    let connect = |login: &str, database: &str| {
        let url = server.url_of(login, database);
        async move { PostgresStore::connect(&url).await }
    };

    let check = "check the user name and the password";
    assert_refused(connect("leases:secret-not", "postgres").await, Denied, check);
    assert_refused(connect("leases", "postgres").await, Denied, check);
    let unknown = connect("leases:secret", "nowhere").await;
    assert_refused(unknown, Misconfigured, "correct the database");
    let both = format!("{:?}", PostgresStore::builder(server.url_of("leases:secret", "x")));
    assert!(!both.contains("secret"), "{both}");
}

#[tokio::test]
async fn unlogged_or_incomplete_table_is_refused() {
    let Some(server) = PostgresServer::start() else { return };
    builder(&server).create_table().await.unwrap();

    server.command("ALTER TABLE lease SET UNLOGGED");
    assert_refused(builder(&server).connect().await, Misconfigured, "SET LOGGED");

    server.command("ALTER TABLE lease SET LOGGED");
    builder(&server).connect().await.unwrap();
    server.command("ALTER TABLE lease DROP COLUMN beat");
    assert_refused(builder(&server).connect().await, Misconfigured, "lacks the columns beat");
}

#[tokio::test]
async fn settings_that_lose_leases_are_refused_or_reported() {
    let Some(server) = PostgresServer::start() else { return };
    builder(&server).create_table().await.unwrap();
    let (warnings, _guard) = Warnings::listen();

    server.command("ALTER ROLE postgres SET synchronous_commit = off");
    assert_refused(builder(&server).connect().await, Misconfigured, "SET synchronous_commit = on");

    server.command("ALTER ROLE postgres RESET synchronous_commit");
    server.command("ALTER ROLE postgres SET default_transaction_isolation = serializable");
    builder(&server).connect().await.unwrap();
    let lines = warnings.lines().join("\n");
    assert!(lines.contains("fsync") && lines.contains("a power cut loses leases"), "{lines}");
    assert!(lines.contains("serializable"), "{lines}");
}

#[tokio::test]
async fn standby_and_read_only_role_are_refused() {
    let Some(server) = PostgresServer::start() else { return };
    builder(&server).create_table().await.unwrap();
    let standby = server.standby();

    let refusal = "give the URL of the primary";
    assert_refused(builder(&standby).connect().await, Unavailable, refusal);

    server.command("ALTER ROLE postgres SET default_transaction_read_only = on");
    assert_refused(builder(&server).connect().await, Unavailable, refusal);
}

#[tokio::test]
async fn database_of_another_encoding_is_refused() {
    let Some(server) = PostgresServer::start() else { return };
    server.command("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    let latin = PostgresStore::builder(server.url_of("postgres", "latin")).with_timeout(PATIENT);
    latin.create_table().await.unwrap();

    assert_refused(latin.connect().await, Misconfigured, "ENCODING 'UTF8'");
}

#[tokio::test]
async fn unreachable_and_silent_servers_are_named() {
    let missing = PostgresStore::connect("postgres://x:secret@127.0.0.1:1/x").await;
    assert_refused(missing, Unavailable, "PostgreSQL at 127.0.0.1:1");

    let Some(server) = PostgresServer::start() else { return };
    server.hang();
    let silent = PostgresStore::connect(&server.url()).await;
    assert_refused(silent, Unavailable, &format!("PostgreSQL at 127.0.0.1:{}", server.port()));
    server.resume();
}

#[tokio::test]
async fn options_out_of_range_are_refused_before_any_request() {
    let builder = || PostgresStore::builder("postgres://127.0.0.1:1/x");

    let names = ["", "a\"b", "a.b.c", "a.", &"x".repeat(64)];
    for table in names {
        let refused = builder().with_table(table).connect().await;
        assert_refused(refused, Misconfigured, "is no valid name");
    }
    let refused = builder().with_timeout(Duration::ZERO).connect().await;
    assert_refused(refused, Misconfigured, "out of range");
    assert_refused(builder().with_connections(1).connect().await, Misconfigured, "out of range");
    let refused = PostgresStore::connect("http://127.0.0.1").await;
    assert_refused(refused, Misconfigured, "does not begin with postgres://");
}
