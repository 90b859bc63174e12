//! Claims, and releases, of several keys in one statement.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use lease_core::store::{Claim, Grant, LockStore, Obtained};
use lease_core::{LeaseKey, StoreErrorKind};
use lease_postgres::{PostgresStore, PostgresStoreBuilder};
use lease_test_servers::claims::{claim, eventually, granted, obtain, soon};
use lease_test_servers::postgres::PostgresServer;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::conditions::{grants_a_held_key, grants_an_old_claim};
use crate::control::{Control, assert_each_is_needed};
use crate::in_turn_controls::frees_a_queued_key;
use crate::setting::{TTL, builder, connected, key, session, waiting_for_locks};

fn key_of(number: usize) -> LeaseKey {
    format!("job-{number}").parse().unwrap()
}

/// A store that sends one statement of claims, and two of releases, at a time.
fn narrow(server: &PostgresServer) -> PostgresStoreBuilder {
    builder(server).with_connections(2)
}

/// Each key was granted and released once.
async fn released_keys(store: &PostgresStore, count: usize) {
    for number in 0..count {
        let grant = obtain(store, &key_of(number), "a", TTL).await;
        store.release(&grant, None).await.unwrap();
    }
}

/// Sends the claims while another session has locked the table, so that all but the first share a statement.
async fn obtain_together(
    store: &PostgresStore,
    server: &PostgresServer,
    claims: Vec<Claim>,
) -> Vec<Result<Obtained, lease_core::StoreError>> {
    let (other, watching) = (session(server).await, session(server).await);
    other.batch_execute("BEGIN; LOCK TABLE lease").await.unwrap();
    let mut sent = Vec::new();
    for claim in claims {
        let store = store.clone();
        sent.push(tokio::spawn(async move { store.obtain(&claim).await }));
        waiting_for_locks(&watching, 1).await;
    }
    other.batch_execute("COMMIT").await.unwrap();
    soon(join_all(sent)).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn claims_and_releases_that_wait_share_statements() {
    const KEYS: usize = 60;
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(narrow(&server)).await;
    released_keys(&store, KEYS).await;
    let claims: Vec<_> = (0..KEYS).map(|number| claim(&key_of(number), "b", TTL)).collect();
    let sent = "SELECT count(DISTINCT xmin::text) FROM lease";

    let answers = obtain_together(&store, &server, claims.clone()).await;

    let mut grants = Vec::new();
    for (claim, answer) in claims.iter().zip(answers) {
        let (grant, _) = granted(answer.unwrap());
        assert_eq!((&grant.key, grant.nonce), (&claim.key, claim.nonce));
        let row = format!("SELECT token, granted FROM lease WHERE key = '{}'", claim.key);
        let row = server.command(&row);
        assert_eq!(row, format!("{}|{}", grant.token, grant.nonce.get()), "{grant:?}");
        grants.push(grant);
    }
    let statements: usize = server.command(sent).parse().unwrap();
    assert!(statements <= KEYS / 4, "{statements} statements granted {KEYS} keys");
    let releases = grants.iter().map(|grant| store.release(grant, None));
    for released in soon(join_all(releases)).await {
        released.unwrap();
    }
    let statements: usize = server.command(sent).parse().unwrap();
    assert!(statements <= KEYS / 4, "{statements} statements released {KEYS} keys");
    let held = server.command("SELECT count(*) FROM lease WHERE ends IS NOT NULL");
    assert_eq!(held, "0");
}

#[tokio::test]
async fn one_of_several_claims_of_a_key_in_a_statement_is_granted() {
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(narrow(&server)).await;
    released_keys(&store, 10).await;
    let claims: Vec<_> =
        (0..40).map(|number| claim(&key_of(number % 10), &format!("m{number}"), TTL)).collect();

    let answers = obtain_together(&store, &server, claims).await;

    let grants = answers.into_iter().filter_map(|answer| match answer.unwrap() {
        Obtained::Granted(grant, _) => Some(grant),
        Obtained::Held(_) => None,
    });
    let mut keys: Vec<_> = grants.map(|grant| grant.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..10).map(key_of).collect::<Vec<_>>());
}

/// Sends requests of twelve keys, which share a statement. Returns whether this statement ends while
/// another session has locked one of its rows.
async fn ends_beside_a_locked_row(
    builder: PostgresStoreBuilder,
    server: &PostgresServer,
    is_release: bool,
    request: fn(PostgresStore, Grant) -> BoxFuture<'static, ()>,
) -> bool {
    let builder = builder.with_timeout(PATIENCE * 3).with_connections(4);
    let store = connected(builder).await;
    let mut grants = Vec::new();
    for number in 0..12 {
        grants.push(obtain(&store, &key_of(number), "a", TTL).await);
    }
    let (other, blocking, watching) =
        (session(server).await, session(server).await, session(server).await);
    let lock = "BEGIN; SELECT FROM lease WHERE key = 'job-9' FOR UPDATE";
    if !is_release {
        for grant in &grants {
            store.release(grant, None).await.unwrap();
        }
    }
    other.batch_execute(lock).await.unwrap();
    blocking.batch_execute("BEGIN; LOCK TABLE lease IN SHARE MODE").await.unwrap();
    let locked = tokio::spawn(request(store.clone(), grants.remove(9)));
    let mut others: JoinSet<_> =
        grants.into_iter().map(|grant| request(store.clone(), grant)).collect();
    waiting_for_locks(&watching, 1).await;

    blocking.batch_execute("COMMIT").await.unwrap();
    let is_prompt = timeout(PATIENCE, async {
        while let Some(ended) = others.join_next().await {
            ended.unwrap();
        }
    });
    let is_prompt = is_prompt.await.is_ok();

    other.batch_execute("COMMIT").await.unwrap();
    soon(locked).await.unwrap();
    soon(others.join_all()).await;
    server.command("TRUNCATE lease");
    is_prompt
}

fn claim_again(store: PostgresStore, grant: Grant) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        granted(store.obtain(&claim(&grant.key, "b", TTL)).await.unwrap());
    })
}

fn release(store: PostgresStore, grant: Grant) -> BoxFuture<'static, ()> {
    Box::pin(async move { store.release(&grant, None).await.unwrap() })
}

#[tokio::test]
async fn locked_row_delays_no_other_request_of_its_statement() {
    let Some(server) = PostgresServer::start() else { return };
    let requests: [(_, _, fn(_, _) -> _); 2] =
        [("obtain_released_all", false, claim_again), ("release_all", true, release)];
    for (statement, is_release, request) in requests {
        assert!(ends_beside_a_locked_row(builder(&server), &server, is_release, request).await);
        let altered = builder(&server).with_altered_statement(statement, "SKIP LOCKED", "");
        let is_prompt = ends_beside_a_locked_row(altered, &server, is_release, request).await;
        assert!(!is_prompt, "{statement}: SKIP LOCKED is not needed");
    }
}

/// The command makes each statement fail that claims `job-5`. Fails if another claim of the statement fails.
async fn fails_only_its_own_claim(command: &str, kind: StoreErrorKind) {
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(narrow(&server)).await;
    released_keys(&store, 8).await;
    server.command(command);
    let claims = (0..8).map(|number| claim(&key_of(number), "b", TTL)).collect();

    let answers = obtain_together(&store, &server, claims).await;

    for (number, answer) in answers.into_iter().enumerate() {
        if number == 5 {
            assert_eq!(answer.unwrap_err().kind(), kind);
        } else {
            granted(answer.unwrap());
        }
    }
}

#[tokio::test]
async fn token_that_cannot_grow_fails_only_its_own_claim() {
    let command = format!("UPDATE lease SET token = {} WHERE key = 'job-5'", i64::MAX);
    fails_only_its_own_claim(&command, StoreErrorKind::Corrupt).await;
}

#[tokio::test]
async fn conflict_with_another_transaction_fails_only_its_own_claim() {
    let command = "CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RAISE EXCEPTION USING ERRCODE = ''40001''; END';
        CREATE TRIGGER conflict BEFORE UPDATE ON lease FOR EACH ROW WHEN (OLD.key = 'job-5')
            EXECUTE FUNCTION conflict()";
    fails_only_its_own_claim(command, StoreErrorKind::Unavailable).await;
}

/// The runtime of the only claim at the server ends, and another claim of this runtime waits.
#[test]
fn store_continues_after_the_runtime_of_a_statement_has_ended() {
    let Some(server) = PostgresServer::start() else { return };
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(async {
        let store = connected(narrow(&server)).await;
        released_keys(&store, 1).await;
        store
    });
    let other = second.block_on(async {
        let other = session(&server).await;
        other.batch_execute("BEGIN; LOCK TABLE lease").await.unwrap();
        other
    });
    for number in 0..2 {
        let (store, claim) = (store.clone(), claim(&key_of(number), "b", TTL));
        first.spawn(async move { store.obtain(&claim).await });
    }
    second.block_on(async { waiting_for_locks(&session(&server).await, 1).await });

    first.shutdown_background();
    second.block_on(async {
        other.batch_execute("COMMIT").await.unwrap();
        let claim = claim(&key_of(2), "c", TTL);
        eventually("granted", async || store.obtain(&claim).await.ok()).await;
    });
}

/// `change` makes the row that of another grant.
async fn releases_another(store: PostgresStore, server: &PostgresServer, change: &str) -> bool {
    let grant = obtain(&store, &key(), "a", TTL).await;
    server.command(&format!("UPDATE lease SET {change}"));
    store.release(&grant, None).await.unwrap();
    store.holder(&key()).await.unwrap().is_none()
}

fn releases_a_later_token(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(releases_another(store, server, "token = token + 1"))
}

fn releases_another_nonce(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(releases_another(store, server, "granted = gen_random_uuid()"))
}

fn ends_a_reservation(store: PostgresStore, _server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let grant = obtain(&store, &key(), "a", TTL).await;
        store.release(&grant, Some(TTL)).await.unwrap();
        store.release(&grant, None).await.unwrap();
        matches!(store.obtain(&claim(&key(), "b", TTL)).await.unwrap(), Obtained::Granted(..))
    })
}

/// The server's clock was set back since the last grant.
fn grants_a_smaller_token(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        released_keys(&store, 1).await;
        server.command("UPDATE lease SET token = token + 3600000000");
        let last: u64 = server.command("SELECT token FROM lease").parse().unwrap();
        obtain(&store, &key_of(0), "b", TTL).await.token.get() <= last
    })
}

/// A watch marks the row, so that its release sends a notification. The next release sends none.
fn forgets_the_watch(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        let grant = obtain(&store, &key(), "a", TTL).await;
        server.command("UPDATE lease SET waits = true");
        store.release(&grant, None).await.unwrap();
        obtain(&store, &key(), "b", TTL).await;
        server.command("SELECT waits FROM lease") != "f"
    })
}

const CONTROLS: [Control; 10] = [
    ("obtain_released_all", "l.ends IS NULL AND", "", grants_a_held_key),
    ("obtain_released_all", "AND l.last IS DISTINCT FROM a.nonce", "", grants_an_old_claim),
    ("obtain_released_all", "last = l.granted,", "last = NULL,", grants_an_old_claim),
    ("obtain_released_all", "l.token + 1", "0", grants_a_smaller_token),
    ("obtain_released_all", "waits = false", "waits = l.waits", forgets_the_watch),
    ("release_all", "l.granted = a.nonce AND", "", releases_another_nonce),
    ("release_all", "AND l.token = a.asked", "", releases_a_later_token),
    ("release_all", "AND l.ends IS NOT NULL", "", ends_a_reservation),
    ("release_all", "AND l.queue IS NULL", "", frees_a_queued_key),
    ("release_all", "until = clock_timestamp()", "until = NULL", releases_without_a_time),
];

/// Only a key that has a time of its release is granted by the short statement.
fn releases_without_a_time(store: PostgresStore, server: &PostgresServer) -> BoxFuture<'_, bool> {
    Box::pin(async move {
        released_keys(&store, 1).await;
        server.command("SELECT until IS NULL FROM lease") == "t"
    })
}

#[tokio::test]
async fn each_condition_of_a_statement_for_several_is_needed() {
    let Some(server) = PostgresServer::start() else { return };
    assert_each_is_needed(&CONTROLS, &server, || builder(&server).with_batches_only()).await;
}

/// A statement waits for a locked row for longer than this.
const PATIENCE: Duration = Duration::from_secs(20);
