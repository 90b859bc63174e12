//! Faults of the server: crashes, failovers, hangs, ended connections.

use std::time::Duration;

use futures_util::FutureExt;
use lease_core::store::{Beat, Heartbeat, LockStore, Obtained};
use lease_core::{LeaseKey, StoreErrorKind};
use lease_postgres::PostgresStore;
use lease_test_servers::claims::{claim, eventually, obtain, soon};
use lease_test_servers::postgres::{PATIENT, PostgresServer};

use crate::setting::{TTL, builder, connected, key, session, setting, waiting_for_locks};

#[tokio::test]
async fn crashed_server_keeps_its_leases() {
    let Some((mut server, store)) = setting().await else { return };
    let grant = obtain(&store, &key(), "a", TTL).await;

    server.crash();
    let unknown = store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable, "{unknown:?}");
    let unknown = store.obtain(&claim(&key(), "b", TTL)).await.unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable, "{unknown:?}");
    server.start_again();

    let beat =
        eventually("answered", async || store.heartbeat(&grant, Beat::new(2)).await.ok()).await;
    assert_eq!(beat, Heartbeat::Extended);
    let claim = claim(&key(), "b", TTL);
    let answer = eventually("answered", async || store.obtain(&claim).await.ok()).await;
    assert!(matches!(answer, Obtained::Held(_)), "{answer:?}");
}

#[tokio::test]
async fn claim_whose_reply_was_lost_is_recognised() {
    let Some((server, store)) = setting().await else { return };
    let claim = claim(&key(), "a", TTL);
    let (other, watching) = (session(&server).await, session(&server).await);
    other.batch_execute("BEGIN; LOCK TABLE lease").await.unwrap();
    let (claiming, repeated) = (store.clone(), claim.clone());
    let waiting = tokio::spawn(async move { claiming.obtain(&repeated).await });
    waiting_for_locks(&watching, 1).await;

    let kill =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    watching.batch_execute(kill).await.unwrap();
    let unknown = soon(waiting).await.unwrap().unwrap_err();
    other.batch_execute("COMMIT").await.unwrap();

    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable);
    let again = eventually("answered", async || store.obtain(&claim).await.ok()).await;
    let Obtained::Granted(grant, _) = again else { panic!("{again:?}") };
    let third = store.obtain(&claim.clone().repeated()).await.unwrap();
    let Obtained::Granted(same, _) = third else { panic!("{third:?}") };
    assert_eq!(same, grant, "a repeated claim returns its grant");
}

#[tokio::test]
async fn hung_server_times_out_and_is_used_again_later() {
    let Some((server, _)) = setting().await else { return };
    let limit = Duration::from_millis(300);
    let store = connected_within(&server, limit).await;
    server.hang();

    let unknown = tokio::time::timeout(limit * 20, store.obtain(&claim(&key(), "a", TTL))).await;

    let unknown = unknown.unwrap().unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable);
    server.resume();
    eventually("answered", async || store.holder(&key()).await.ok()).await;
}

async fn connected_within(server: &PostgresServer, limit: Duration) -> PostgresStore {
    let store = builder(server).with_timeout(limit).connect().await.unwrap();
    eventually("answered", async || store.holder(&key()).await.ok()).await;
    store
}

/// Replication is asynchronous by default, so the standby may lack the last grants.
#[tokio::test]
async fn tokens_grow_over_a_failover() {
    let Some((mut primary, _)) = setting().await else { return };
    let standby = primary.standby();
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?sslmode=disable",
        primary.port(),
        standby.port()
    );
    let store = PostgresStore::builder(url).with_timeout(PATIENT).connect().await.unwrap();
    let grant = obtain(&store, &key(), "a", TTL).await;
    store.release(&grant, None).await.unwrap();

    primary.crash();
    standby.promote();

    let next = eventually("granted by the new primary", async || {
        match store.obtain(&claim(&key(), "b", TTL)).await {
            Ok(Obtained::Granted(grant, _)) => Some(grant),
            _ => None,
        }
    })
    .await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

#[tokio::test]
async fn connection_to_a_read_only_server_is_closed() {
    let Some((server, store)) = setting().await else { return };
    let grant = obtain(&store, &key(), "a", TTL).await;

    // The setting applies to the next transaction of each open connection.
    server.command("ALTER SYSTEM SET default_transaction_read_only = on");
    server.command("SELECT pg_reload_conf()");
    let refused = eventually("refused", async || store.heartbeat(&grant, Beat::new(1)).await.err());
    assert_eq!(refused.await.kind(), StoreErrorKind::Unavailable);
    server.command("ALTER SYSTEM RESET ALL");
    server.command("SELECT pg_reload_conf()");

    let beat =
        eventually("answered", async || store.heartbeat(&grant, Beat::new(99)).await.ok()).await;
    assert_eq!(beat, Heartbeat::Extended);
}

/// While another session locks the table, statements must not pile up at the server.
#[tokio::test]
async fn late_request_is_cancelled_at_the_server() {
    let Some((server, _)) = setting().await else { return };
    let store = builder(&server).with_timeout(Duration::from_millis(200)).connect().await.unwrap();
    let (other, watching) = (session(&server).await, session(&server).await);
    other.batch_execute("BEGIN; LOCK TABLE lease").await.unwrap();

    for _ in 0..10 {
        let late = store.obtain(&claim(&key(), "a", TTL)).await.unwrap_err();
        assert_eq!(late.kind(), StoreErrorKind::Unavailable);
    }

    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("no statement waits", async || {
        let count: i64 = watching.query_one(waiting, &[]).await.unwrap().get(0);
        (count == 0).then_some(())
    })
    .await;
    other.batch_execute("COMMIT").await.unwrap();
    eventually("granted", async || store.obtain(&claim(&key(), "a", TTL)).await.ok()).await;
}

#[tokio::test]
async fn unpolled_claims_delay_no_heartbeat() {
    let Some((_server, store)) = setting().await else { return };
    let grant = obtain(&store, &key(), "a", TTL).await;
    let claims: Vec<_> = (0..500).map(|_| claim(&key(), "b", TTL)).collect();
    let mut obtaining: Vec<_> = claims.iter().map(|claim| store.obtain(claim)).collect();

    let answered = obtaining.iter_mut().filter_map(FutureExt::now_or_never).count();

    assert_eq!(answered, 0);
    let beat = tokio::time::timeout(TTL, store.heartbeat(&grant, Beat::new(1))).await;
    assert_eq!(beat.unwrap().unwrap(), Heartbeat::Extended);
    tokio::time::timeout(TTL, store.release(&grant, None)).await.unwrap().unwrap();
}

#[tokio::test]
async fn claims_leave_connections_to_heartbeats() {
    let Some(server) = PostgresServer::start() else { return };
    let store = connected(builder(&server).with_connections(4).with_timeout(TTL)).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let other: LeaseKey = "other".parse().unwrap();
    let expired = obtain(&store, &other, "a", TTL).await;
    store.release(&expired, None).await.unwrap();
    let (locking, watching) = (session(&server).await, session(&server).await);
    let lock = "BEGIN; SELECT FROM lease WHERE key = 'other' FOR UPDATE";
    locking.batch_execute(lock).await.unwrap();
    for _ in 0..20 {
        let (store, claim) = (store.clone(), claim(&other, "b", TTL));
        tokio::spawn(async move { store.obtain(&claim).await });
    }
    waiting_for_locks(&watching, 2).await;

    let beat = soon(store.heartbeat(&grant, Beat::new(1))).await.unwrap();

    assert_eq!(beat, Heartbeat::Extended);
    locking.batch_execute("COMMIT").await.unwrap();
}
