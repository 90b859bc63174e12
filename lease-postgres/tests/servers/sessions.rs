//! Conditions of sessions that the conformance kit cannot test one by one. The control of each removes it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use lease_core::store::{
    Ended, Grant, LastGrant, LeaseRecord, LeaseTable, LockStore, Obtained, Parent, SessionState,
    Sessions, Vacancy,
};
use lease_core::{LeaseKey, StoreErrorKind, Value};
use lease_postgres::{PostgresStore, PostgresStoreBuilder};
use lease_test_servers::claims::{claim, obtain, soon};
use lease_test_servers::postgres::PostgresServer;

use crate::control::{Control, assert_each_is_needed};
use crate::setting::{TTL, builder, connected, key, session, setting, waiting_for_locks};

async fn record(store: &PostgresStore, key: &LeaseKey) -> Option<LeaseRecord> {
    store.read_all(std::slice::from_ref(key)).await.remove(0).unwrap()
}

async fn vacancy(store: &PostgresStore, proof: Option<&Ended>) -> Vacancy {
    let record = record(store, &key()).await;
    Vacancy::seen(&key(), record.as_ref(), &"a".parse().unwrap(), proof).unwrap()
}

/// The session `worker`, and a lease of the usual key under it.
async fn child(store: &PostgresStore) -> (Grant, Grant) {
    let worker = obtain(store, &"worker".parse().unwrap(), "a", TTL).await;
    let seen = vacancy(store, None).await;
    let claim = claim(&key(), "a", TTL).under(Parent::from(&worker));
    match store.obtain_under(&claim, &seen).await.unwrap() {
        Obtained::Granted(grant, _) => (worker, grant),
        Obtained::Held(holder) => panic!("the key is held by {holder:?}"),
    }
}

async fn is_granted(store: &PostgresStore, seen: &Vacancy) -> bool {
    let answer = store.obtain_under(&claim(&key(), "b", TTL), seen).await.unwrap();
    matches!(answer, Obtained::Granted(..))
}

/// A failover has lost the release that the client has read.
fn grants_an_open_lease(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let grant = obtain(&store, &key(), "a", TTL).await;
        store.release(&grant, None).await.unwrap();
        let seen = vacancy(&store, None).await;
        server.command("UPDATE lease SET ends = clock_timestamp() + interval '1 hour'");
        is_granted(&store, &seen).await
    })
}

fn frees_after<'a>(
    change: &'static str,
    store: PostgresStore,
    server: &'a PostgresServer,
) -> BoxFuture<'a, bool> {
    Box::pin(async move {
        let (worker, _) = child(&store).await;
        let seen = vacancy(&store, Some(&Ended::written(Parent::from(&worker)))).await;
        server.command(&format!("UPDATE lease SET {change} WHERE parent IS NOT NULL"));
        is_granted(&store, &seen).await
    })
}

fn grants_under_another_key(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    frees_after("parent = 'other'", store, server)
}

fn grants_under_another_token(
    store: PostgresStore,
    server: &PostgresServer,
) -> BoxFuture<'_, bool> {
    frees_after("parent_token = parent_token + 1", store, server)
}

fn grants_a_lease_with_a_ttl(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    frees_after("ends = clock_timestamp() + interval '1 hour'", store, server)
}

fn grants_another_token(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    frees_after("token = token + 1", store, server)
}

/// The row was deleted since the client has read it.
fn grants_a_deleted_row(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let grant = obtain(&store, &key(), "a", TTL).await;
        store.release(&grant, None).await.unwrap();
        let seen = vacancy(&store, None).await;
        server.command("DELETE FROM lease");
        is_granted(&store, &seen).await
    })
}

/// A later session has expired. The end of the former session must not change it.
fn ends_a_later_session(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let former = obtain(&store, &key(), "a", TTL).await;
        store.release(&former, None).await.unwrap();
        obtain(&store, &key(), "a", TTL).await;
        server.command("UPDATE lease SET ends = clock_timestamp()");
        store.end_session(&Parent::from(&former)).await.unwrap();
        record(&store, &key()).await.unwrap().last_grant == LastGrant::Ended
    })
}

/// A failover has lost the grant of the session. Without the end mark, a late copy of its claim could be granted
/// under the same token.
fn leaves_no_end_mark(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let session = obtain(&store, &key(), "a", TTL).await;
        store.release(&session, None).await.unwrap();
        server.command("UPDATE lease SET token = token - 1");
        // A broken statement may also end no session, which is an error.
        if store.end_session(&Parent::from(&session)).await.is_err() {
            return true;
        }
        record(&store, &key()).await.unwrap().token != Some(session.token)
    })
}

fn leaves_no_row(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let session = obtain(&store, &key(), "a", TTL).await;
        server.command("DELETE FROM lease");
        drop(store.end_session(&Parent::from(&session)).await);
        record(&store, &key()).await.is_none_or(|it| it.token != Some(session.token))
    })
}

fn counts_a_text(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let text = [("sky".to_owned(), Value::from("blue"))].into();
        store.create(&key(), &text).await.unwrap();
        match store.count(&key(), "sky").await {
            Err(error) => error.kind() != StoreErrorKind::Corrupt,
            Ok(_count) => true,
        }
    })
}

const CONTROLS: [Control; 10] = [
    ("obtain_under", "THEN l.ends IS NULL", "THEN true", grants_an_open_lease),
    ("obtain_under", "AND l.parent = $8", "", grants_under_another_key),
    ("obtain_under", "AND l.parent_token = $9", "", grants_under_another_token),
    ("obtain_under", "ELSE l.ends = 'infinity' AND", "ELSE", grants_a_lease_with_a_ttl),
    ("obtain_under", "AND l.token IS NOT DISTINCT FROM $7", "", grants_another_token),
    ("obtain_under", "WHERE $7 IS NULL AND NOT", "WHERE NOT", grants_a_deleted_row),
    ("end_session", "AND (s.token IS NULL OR s.token <= $2)", "", ends_a_later_session),
    ("end_session", "OR (s.ends IS NULL AND s.token IS DISTINCT FROM $2)", "", leaves_no_end_mark),
    ("end_session", "WHERE NOT EXISTS (SELECT FROM seen)", "WHERE false", leaves_no_row),
    (
        "count",
        "WHERE NOT l.attributes ? $2 OR l.attributes -> $2 ->> 'N' ~ '^-?[0-9]{1,18}$'",
        "",
        counts_a_text,
    ),
];

#[tokio::test]
async fn each_condition_of_a_session_is_needed() {
    let Some(server) = PostgresServer::start() else { return };
    assert_each_is_needed(&CONTROLS, &server, || builder(&server)).await;
}

/// The end waits for the row, while a heartbeat extends the session. Returns whether the session was ended.
async fn ends_after_a_wait(builder: PostgresStoreBuilder, server: &PostgresServer) -> bool {
    let store = connected(builder).await;
    let worker = obtain(&store, &key(), "a", TTL).await;
    server.command("UPDATE lease SET ends = clock_timestamp()");
    let (other, watching) = (session(server).await, session(server).await);
    let extended = "UPDATE lease SET ends = clock_timestamp() + interval '1 hour'";
    other.batch_execute(&format!("BEGIN; {extended}")).await.unwrap();
    let ending = tokio::spawn(async move { store.end_session(&Parent::from(&worker)).await });
    waiting_for_locks(&watching, 1).await;

    other.batch_execute("COMMIT").await.unwrap();

    let state = soon(ending).await.unwrap().unwrap();
    server.command("TRUNCATE lease");
    matches!(state, SessionState::Ended(_))
}

#[tokio::test]
async fn session_that_is_extended_meanwhile_is_not_ended() {
    let Some(server) = PostgresServer::start() else { return };
    let sound = builder(&server);
    let altered = sound.clone().with_altered_statement("end_session", "FOR UPDATE OF h", "");

    assert!(!ends_after_a_wait(sound, &server).await);
    assert!(ends_after_a_wait(altered, &server).await, "the statement needs no lock");
}

/// Two claims name the same vacancy. The second one waits for the row.
#[tokio::test]
async fn claim_that_waited_for_another_is_refused() {
    let Some((server, store)) = setting().await else { return };
    let grant = obtain(&store, &key(), "a", TTL).await;
    store.release(&grant, None).await.unwrap();
    let seen = vacancy(&store, None).await;
    let (other, watching) = (session(&server).await, session(&server).await);
    let taken = "UPDATE lease SET token = token + 1, ends = 'infinity', granted = gen_random_uuid(), \
        parent = 'worker', parent_token = 7";
    other.batch_execute(&format!("BEGIN; {taken}")).await.unwrap();
    let waiting =
        tokio::spawn(async move { store.obtain_under(&claim(&key(), "b", TTL), &seen).await });
    waiting_for_locks(&watching, 1).await;

    other.batch_execute("COMMIT").await.unwrap();

    let Obtained::Held(holder) = soon(waiting).await.unwrap().unwrap() else {
        panic!("the key was granted twice")
    };
    assert_eq!(
        holder.parent.map(|session| session.key.as_str().to_owned()),
        Some("worker".to_owned())
    );
}

/// Each refused claim under a session names a token that the row no longer has.
#[tokio::test]
async fn refused_claim_under_a_session_uses_no_transaction() {
    let Some((server, store)) = setting().await else { return };
    let seen = vacancy(&store, None).await;
    child(&store).await;
    let next = || server.command("SELECT pg_snapshot_xmax(pg_current_snapshot())");
    let before = next();

    for _ in 0..20 {
        assert!(!is_granted(&store, &seen).await);
    }

    assert_eq!(next(), before);
}

#[tokio::test]
async fn end_of_a_session_wakes_a_waiter() {
    let Some((server, store)) = setting().await else { return };
    let worker = obtain(&store, &key(), "a", TTL).await;
    let mut freed = store.watch(&key()).await.unwrap();
    let is_marked = async || (server.command("SELECT waits FROM lease") == "t").then_some(());
    let marked = lease_test_servers::claims::eventually("the waiter marks the row", is_marked);
    tokio::select! {
        () = marked => (),
        _ = freed.next() => panic!("the key is held"),
    }
    server.command("UPDATE lease SET ends = clock_timestamp()");

    store.end_session(&Parent::from(&worker)).await.unwrap();

    tokio::time::timeout(Duration::from_secs(60), freed.next()).await.unwrap();
}
