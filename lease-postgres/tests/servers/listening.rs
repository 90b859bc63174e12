//! Watches: notifications of releases, also where notifications do not arrive.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use lease_core::store::LockStore;
use lease_core::{LeaseOptions, Locker};
use lease_postgres::PostgresStore;
use lease_test_servers::claims::{eventually, obtain, soon};
use lease_test_servers::postgres::{PATIENT, PgBouncer, PostgresServer};
use lease_test_servers::warnings::Warnings;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, NoTls};

use crate::setting::{TTL, builder, connected, key, setting};

#[tokio::test]
async fn watch_wakes_when_its_connection_ends_and_can_be_renewed() {
    let Some((server, store)) = setting().await else { return };
    let grant = obtain(&store, &key(), "a", TTL).await;
    let freed = store.watch(&key()).await.unwrap();

    server.command(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
    );

    soon(freed).await;
    let freed = eventually("watched again", async || store.watch(&key()).await.ok()).await;
    eventually("released", async || store.release(&grant, None).await.ok()).await;
    soon(freed).await;
}

/// `NOTIFY` locks the whole server.
#[tokio::test]
async fn release_notifies_only_if_a_client_waits() {
    let Some((server, store)) = setting().await else { return };
    let unwatched = obtain(&store, &"unwatched".parse().unwrap(), "a", TTL).await;
    let watched = obtain(&store, &key(), "a", TTL).await;
    let freed = tokio::spawn(store.watch(&key()).await.unwrap());
    eventually("the row is marked", async || {
        (server.command("SELECT waits FROM lease WHERE key = 'job'") == "t").then_some(())
    })
    .await;
    let mut notified = notifications(&server).await;

    store.release(&unwatched, None).await.unwrap();
    store.release(&watched, None).await.unwrap();

    soon(freed).await.unwrap();
    let first = soon(notified.recv()).await.unwrap();
    assert_eq!(first, "job", "no client waits for the other key");
}

async fn notifications(server: &PostgresServer) -> UnboundedReceiver<String> {
    let (client, mut connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    let (notify, notified) = unbounded_channel();
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    tokio::spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                drop(notify.send(notification.payload().to_owned()));
            }
        }
    });
    client.batch_execute("LISTEN \"lease:freed\"").await.unwrap();
    tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(client);
    });
    notified
}

#[tokio::test]
async fn missing_notification_is_noticed() {
    let Some(server) = PostgresServer::start() else { return };
    let sabotages = [
        ("release", "CASE WHEN waits", "CASE WHEN false"),
        ("release_all", "CASE WHEN l.waits", "CASE WHEN false"),
        ("mark", "SET waits = true", "SET waits = l.waits"),
    ];
    for (statement, part, replacement) in sabotages {
        let builder = builder(&server).with_altered_statement(statement, part, replacement);
        let is_batched = statement.ends_with("_all");
        let builder = if is_batched { builder.with_batches_only() } else { builder };
        let store = connected(builder).await;
        let grant = obtain(&store, &key(), "a", TTL).await;
        let mut freed = store.watch(&key()).await.unwrap();
        // The watch marks the row in this time, since the release must come after the mark.
        let early = tokio::time::timeout(Duration::from_secs(2), &mut freed).await;
        assert!(early.is_err(), "the key is held");

        store.release(&grant, None).await.unwrap();

        let woken = tokio::time::timeout(Duration::from_secs(2), freed).await;
        assert!(woken.is_err(), "{statement}: the condition is not needed");
    }
}

#[tokio::test]
async fn watch_of_a_free_key_wakes_at_once() {
    let Some((_server, store)) = setting().await else { return };

    soon(store.watch(&key()).await.unwrap()).await;
}

#[tokio::test]
async fn waiter_is_woken_long_before_its_poll() {
    let Some((_server, store)) = setting().await else { return };
    let options = LeaseOptions::new(TTL).unwrap();
    let lockers = ["a", "b"].map(|name| {
        Locker::new(store.clone()).with_options(options.clone()).with_lessee(name.parse().unwrap())
    });
    let lease = lockers[0].wait_until_obtained(&key()).await.unwrap();
    let waiter = lockers[1].clone();
    let waiting = tokio::spawn(async move { waiter.wait_until_obtained(&key()).await });
    let held = store.holder(&key()).await.unwrap();
    assert!(held.is_some());

    lease.release().await.unwrap();

    // Without a notification, the waiter would poll after the ttl of ten minutes.
    let next = tokio::time::timeout(Duration::from_secs(120), waiting).await;
    next.expect("woken").unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn store_notices_that_a_pooler_loses_notifications() {
    let Some(server) = PostgresServer::start() else { return };
    let Some(pooler) = PgBouncer::in_front_of(&server) else { return };
    let through = || PostgresStore::builder(pooler.url());
    let (warnings, _guard) = Warnings::listen();
    let store = connected(through()).await;

    let watch = store.watch(&key()).await.unwrap();

    assert!(!watch.can_wake(), "notifications do not pass a pooler in transaction mode");
    let lines = warnings.lines().join("\n");
    assert!(lines.contains("with_listen_url"), "{lines}");
    let again = store.watch(&key()).await.unwrap();
    assert!(!again.can_wake());
    assert_eq!(warnings.lines().iter().filter(|line| line.contains("listen")).count(), 1);

    let around = through().with_listen_url(server.url()).with_timeout(PATIENT);
    let store = connected(around).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let freed = store.watch(&key()).await.unwrap();
    assert!(freed.can_wake());
    store.release(&grant, None).await.unwrap();
    soon(freed).await;
}

#[tokio::test]
async fn waiters_share_an_attempt_to_reach_a_silent_server() {
    let Some(server) = PostgresServer::start() else { return };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("postgres://postgres@{}/postgres", silent.local_addr().unwrap());
    let builder = PostgresStore::builder(server.url()).with_listen_url(at);
    let store = connected(builder.with_timeout(Duration::from_secs(5))).await;

    let watches = (0..20).map(|_| async { store.watch(&key()).await.err() });
    let faults = join_all(watches).await;

    assert!(faults.iter().all(Option::is_some), "{faults:?}");
    silent.set_nonblocking(true).unwrap();
    let attempts = std::iter::from_fn(|| silent.accept().ok()).count();
    assert_eq!(attempts, 1);
}

#[tokio::test]
async fn store_without_waiters_opens_no_listening_connection() {
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(builder(&server)).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    store.release(&grant, None).await.unwrap();

    let listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";

    assert_eq!(server.command(listening), "0");
    drop(store.watch(&key()).await.unwrap());
    assert_eq!(server.command(listening), "1");
    drop(store);
    eventually("the connection is closed", async || {
        (server.command(listening) == "0").then_some(())
    })
    .await;
}
