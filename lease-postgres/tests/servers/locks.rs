//! Requests that wait for a row that another session has locked, while the lease ends or is taken
//! over.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::{Beat, Grant, Heartbeat, InTurn, LeaseTable, LockStore, Obtained};
use lease_core::{Change, LossCause, StoreErrorKind, Written};
use lease_postgres::{PostgresStore, PostgresStoreBuilder};
use lease_test_servers::claims::{claim, obtain, soon};
use lease_test_servers::postgres::{PgBouncer, PostgresServer};
use tokio::task::JoinSet;

use crate::setting::{TTL, builder, connected, key, session, setting, waiting_for_locks};

pub(crate) type Request =
    fn(PostgresStore, Grant) -> futures_util::future::BoxFuture<'static, bool>;

pub(crate) const REQUESTS: [(&str, Request); 6] = [
    ("heartbeat", |store, grant| {
        Box::pin(async move {
            store.heartbeat(&grant, Beat::new(1)).await.unwrap() == Heartbeat::Extended
        })
    }),
    ("release", |store, grant| {
        Box::pin(async move {
            store.release(&grant, None).await.unwrap();
            store.holder(&key()).await.unwrap().is_none()
        })
    }),
    ("adopt", |store, grant| {
        Box::pin(async move {
            let claim = claim(&key(), "adopter", TTL);
            matches!(store.adopt(&grant, &claim).await.unwrap(), Obtained::Granted(..))
        })
    }),
    ("update", |store, grant| {
        Box::pin(async move {
            let change = Change::new().set("step", "1");
            store.update(&grant, &change).await.unwrap() == Written::Applied
        })
    }),
    ("transfer", |store, grant| {
        Box::pin(async move {
            let to = "other".parse().unwrap();
            store.transfer(&grant, &to, TTL).await.unwrap() == Written::Applied
        })
    }),
    ("delete", |store, grant| {
        Box::pin(async move { store.delete(&grant).await.unwrap() == Written::Applied })
    }),
];

/// Another session locks the row, and runs `meanwhile` before its commit. Returns whether the request was
/// applied.
async fn applied_after(
    server: &PostgresServer,
    store: PostgresStore,
    request: Request,
    meanwhile: &str,
) -> bool {
    let grant = obtain(&store, &key(), "a", TTL).await;
    let other = session(server).await;
    let watching = session(server).await;
    other.batch_execute("BEGIN; SELECT FROM lease FOR UPDATE").await.unwrap();
    let waiting = tokio::spawn(request(store, grant));
    waiting_for_locks(&watching, 1).await;

    other.batch_execute(meanwhile).await.unwrap();
    other.batch_execute("COMMIT").await.unwrap();

    let applied = soon(waiting).await.unwrap();
    other.batch_execute("TRUNCATE lease").await.unwrap();
    applied
}

const TAKEN_OVER: &str = "UPDATE lease SET token = token + 1, lessee = 'b', \
    granted = gen_random_uuid(), ends = clock_timestamp() + interval '1 hour'";

#[tokio::test]
async fn request_that_waited_for_a_takeover_is_refused() {
    let Some((server, store)) = setting().await else { return };
    for (name, request) in REQUESTS {
        let applied = applied_after(&server, store.clone(), request, TAKEN_OVER).await;

        assert!(!applied, "{name} was applied to the lease of another lessee");
    }
}

/// Negative control: the statements compare with the row from before their wait.
#[tokio::test]
async fn statement_that_does_not_lock_first_is_noticed() {
    let Some(server) = PostgresServer::start() else { return };
    // The conditions of a release do not depend on the time, so a release needs no lock.
    for (name, request) in REQUESTS.into_iter().filter(|(name, _)| *name != "release") {
        let lock = if name == "heartbeat" { "FOR UPDATE OF l" } else { "FOR UPDATE OF h" };
        let store = connected(builder(&server).with_altered_statement(name, lock, "")).await;

        let applied = applied_after(&server, store, request, TAKEN_OVER).await;

        assert!(applied, "{name} needs no lock: remove it, or correct this test");
    }
}

/// The other session changes nothing, so PostgreSQL does not check the row again after the wait.
async fn revives_after_a_wait(builder: PostgresStoreBuilder, server: &PostgresServer) -> bool {
    let store = connected(builder).await;
    let ttl = Duration::from_secs(10);
    let grant = obtain(&store, &key(), "a", ttl).await;
    let (other, watching) = (session(server).await, session(server).await);
    other.batch_execute("BEGIN; SELECT FROM lease FOR UPDATE").await.unwrap();
    let heartbeat = tokio::spawn(async move { store.heartbeat(&grant, Beat::new(1)).await });
    waiting_for_locks(&watching, 1).await;

    let expiry = "DO $$ BEGIN WHILE (SELECT ends > clock_timestamp() FROM lease) LOOP \
        PERFORM pg_sleep(0.05); END LOOP; END $$";
    watching.batch_execute(expiry).await.unwrap();
    other.batch_execute("COMMIT").await.unwrap();

    let answer = soon(heartbeat).await.unwrap().unwrap();
    assert!(matches!(answer, Heartbeat::Extended | Heartbeat::Lost(LossCause::Expired)));
    answer == Heartbeat::Extended
}

#[tokio::test]
async fn heartbeat_that_waited_for_a_lock_does_not_revive() {
    let Some(server) = PostgresServer::start() else { return };

    assert!(!revives_after_a_wait(builder(&server), &server).await);
}

/// `now()` is the time before the wait.
#[tokio::test]
async fn comparison_with_time_before_the_wait_is_noticed() {
    let Some(server) = PostgresServer::start() else { return };
    let now = ("heartbeat", "AND m.ends > clock_timestamp()", "AND m.ends > now()");

    assert!(
        revives_after_a_wait(builder(&server).with_altered_statement(now.0, now.1, now.2), &server)
            .await
    );
}

#[tokio::test]
async fn locked_row_delays_no_other_heartbeat() {
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(builder(&server).with_timeout(Duration::from_secs(8))).await;
    let mut beats = Vec::new();
    for number in 0..50 {
        let key = format!("job-{number}").parse().unwrap();
        beats.push((obtain(&store, &key, "a", TTL).await, Beat::new(1)));
    }
    let other = session(&server).await;
    let lock = "BEGIN; SELECT FROM lease WHERE key = 'job-7' FOR UPDATE";
    other.batch_execute(lock).await.unwrap();

    let answers: Vec<_> = store.heartbeat_all(&beats).collect().await;

    assert_eq!(answers.len(), 50);
    for (order, (place, answer)) in answers.into_iter().enumerate() {
        if place != 7 {
            assert_eq!(answer.unwrap(), Heartbeat::Extended, "heartbeat {place}");
            continue;
        }
        assert_eq!(order, 49, "the locked row is answered last");
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(reason.contains("another session has locked the row"), "{reason}");
    }
    other.batch_execute("COMMIT").await.unwrap();
    let (grant, _) = &beats[7];
    assert_eq!(store.heartbeat(grant, Beat::new(2)).await.unwrap(), Heartbeat::Extended);
}

/// Fails if a claim and a release that wait for a locked row end later than at the lock timeout.
async fn end_at_the_lock_timeout(server: &PostgresServer, url: String) {
    let builder = PostgresStore::builder(url).with_timeout(Duration::from_secs(8));
    let store = connected(builder).await;
    let held = obtain(&store, &"held".parse().unwrap(), "a", TTL).await;
    let released = obtain(&store, &key(), "a", TTL).await;
    store.release(&released, None).await.unwrap();
    let other = session(server).await;
    other.batch_execute("BEGIN; SELECT FROM lease FOR UPDATE").await.unwrap();

    let claim = claim(&key(), "b", TTL);
    let (claimed, released) = tokio::join!(store.obtain(&claim), store.release(&held, None));

    for error in [claimed.unwrap_err(), released.unwrap_err()] {
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(reason.contains("another session has locked the row"), "{reason}");
    }
}

/// The shortest statements set no lock timeout, because the session has it.
#[tokio::test]
async fn claim_and_release_of_a_locked_row_end_at_the_lock_timeout() {
    let Some(server) = PostgresServer::start() else { return };
    end_at_the_lock_timeout(&server, server.url()).await;
}

/// The session has no lock timeout, so each statement sets one.
#[tokio::test]
async fn locked_row_behind_a_pooler_that_ignores_options_ends_requests_at_the_lock_timeout() {
    let Some(server) = PostgresServer::start() else { return };
    let Some(pooler) = PgBouncer::ignoring_options(&server) else { return };
    end_at_the_lock_timeout(&server, pooler.url()).await;
}

#[tokio::test]
async fn waiters_that_leave_a_locked_row_delay_no_heartbeat() {
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(builder(&server).with_timeout(Duration::from_secs(60))).await;
    let beating = obtain(&store, &"other".parse().unwrap(), "a", TTL).await;
    obtain(&store, &key(), "a", TTL).await;
    let (other, watching) = (session(&server).await, session(&server).await);
    let lock = "BEGIN; SELECT FROM lease WHERE key = 'job' FOR UPDATE";
    other.batch_execute(lock).await.unwrap();
    let mut leaves = JoinSet::new();
    for number in 0..100 {
        let (store, claim) = (store.clone(), claim(&key(), &format!("waiter-{number}"), TTL));
        leaves.spawn(async move { store.leave(&claim).await });
    }
    waiting_for_locks(&watching, 6).await;

    let answer = store.heartbeat(&beating, Beat::new(1)).await;

    assert!(leaves.try_join_next().is_none(), "the heartbeat waited for the locked row");
    assert_eq!(answer.unwrap(), Heartbeat::Extended);
    other.batch_execute("COMMIT").await.unwrap();
    for left in soon(leaves.join_all()).await {
        left.unwrap();
    }
}

/// Above READ COMMITTED, one of two concurrent writes fails. The locker repeats the failed write.
#[tokio::test]
async fn serialization_failure_is_retryable() {
    let Some((server, _)) = setting().await else { return };
    server.command("ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'");
    let store = connected(builder(&server)).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let (other, watching) = (session(&server).await, session(&server).await);
    other.batch_execute("BEGIN; UPDATE lease SET waits = true").await.unwrap();
    let (holder, beating) = (store.clone(), grant.clone());
    let waiting = tokio::spawn(async move { holder.heartbeat(&beating, Beat::new(1)).await });
    waiting_for_locks(&watching, 1).await;

    other.batch_execute("COMMIT").await.unwrap();

    let error = soon(waiting).await.unwrap().unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
}
