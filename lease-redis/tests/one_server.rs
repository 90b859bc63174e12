//! `RedisStore` on one logical server.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::store::{Beat, Claim, Grant, Heartbeat, LockStore, Nonce, Obtained};
use lease_core::{LeaseKey, Lessee, StoreErrorKind};
use lease_redis::{RedisStore, RedisStoreBuilder};
use lease_test_servers::claims::eventually;
use lease_test_servers::redis::{
    PATIENT, RedisCluster, RedisSentinel, RedisServer, available, until,
};

const TTL: Duration = Duration::from_secs(30);

fn key() -> LeaseKey {
    "job".parse().unwrap()
}

fn claim() -> Claim {
    Claim::new(key(), Lessee::new("a").unwrap(), Nonce::random(), TTL)
}

async fn patient(builder: RedisStoreBuilder) -> RedisStore {
    builder.with_timeout(PATIENT).connect().await.unwrap()
}

async fn granted(store: &RedisStore) -> Option<Grant> {
    match store.obtain(&claim()).await {
        Ok(Obtained::Granted(grant, _)) => Some(grant),
        _ => None,
    }
}

#[tokio::test]
async fn lock_reports_its_holder_and_refuses_a_second_claim() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let store = patient(RedisStore::builder(server.url())).await;
    assert_eq!(store.holder(&key()).await.unwrap(), None, "a free key has no holder");

    let grant = granted(&store).await.unwrap();
    let holder = store.holder(&key()).await.unwrap().unwrap();

    assert!(holder.holds(&grant), "another grant is reported");
    assert!(holder.expires_in.unwrap() <= TTL, "the lease is longer than its ttl");
    assert!(granted(&store).await.is_none(), "a second claim was granted");
    store.release(&grant, None).await.unwrap();
    assert!(granted(&store).await.is_some(), "a released key was not granted");
}

#[tokio::test]
async fn tokens_grow_over_faults_of_the_server() {
    if !available() {
        return;
    }
    let mut server = RedisServer::with_append_only_file();
    let store = patient(RedisStore::builder(server.url())).await;
    let mut last = granted(&store).await.unwrap();
    store.release(&last, None).await.unwrap();

    for fault in ["SCRIPT FLUSH", "CLIENT KILL TYPE normal", "FLUSHALL", "restart", "empty"] {
        match fault {
            "restart" => server.restart(),
            "empty" => server.restart_empty(),
            command => drop(server.command(command)),
        }

        let next = eventually("granted", async || granted(&store).await).await;

        assert!(next.token > last.token, "{fault}: {} after {}", next.token, last.token);
        store.release(&next, None).await.unwrap();
        last = next;
    }
}

#[tokio::test]
async fn lease_survives_a_restart_with_a_synced_log() {
    if !available() {
        return;
    }
    let mut server = RedisServer::with_append_only_file();
    let store = patient(RedisStore::builder(server.url())).await;
    let grant = granted(&store).await.unwrap();

    server.restart();

    let beat =
        eventually("answered", async || store.heartbeat(&grant, Beat::new(1)).await.ok()).await;
    assert_eq!(beat, Heartbeat::Extended);
    assert!(granted(&store).await.is_none());
}

#[tokio::test]
async fn tokens_grow_over_a_failover() {
    if !available() {
        return;
    }
    let mut servers = RedisSentinel::that_promotes();
    let store = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);
    let store = patient(store.with_replicas(1)).await;
    let grant = granted(&store).await.unwrap();
    store.release(&grant, None).await.unwrap();

    servers.servers[0].kill();

    let next = eventually("granted by the new master", async || granted(&store).await).await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

#[tokio::test]
async fn tokens_grow_over_a_failover_in_a_cluster() {
    if !available() {
        return;
    }
    let mut cluster = RedisCluster::start(1);
    let store = patient(RedisStore::cluster(cluster.urls())).await;
    let mut grants = Vec::new();
    for number in 0..12 {
        let mut claim = claim();
        claim.key = LeaseKey::new(format!("job-{number}")).unwrap();
        let Ok(Obtained::Granted(grant, _)) = store.obtain(&claim).await else { panic!() };
        store.release(&grant, None).await.unwrap();
        grants.push(grant);
    }

    cluster.nodes.iter_mut().find(|node| node.is_master()).unwrap().kill();

    for grant in grants {
        let next = eventually("granted", async || {
            let mut claim = claim();
            claim.key = grant.key.clone();
            match store.obtain(&claim).await {
                Ok(Obtained::Granted(grant, _)) => Some(grant),
                _ => None,
            }
        })
        .await;
        assert!(next.token > grant.token, "{}: {} after {}", grant.key, next.token, grant.token);
    }
}

#[tokio::test]
async fn watch_ends_with_its_connection_and_can_be_renewed() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let store = patient(RedisStore::builder(server.url())).await;
    let grant = granted(&store).await.unwrap();
    let freed = store.watch(&key()).await.unwrap();

    server.command("CLIENT KILL TYPE pubsub");

    tokio::time::timeout(Duration::from_secs(60), freed).await.unwrap();
    let freed = eventually("watched again", async || store.watch(&key()).await.ok()).await;
    eventually("released", async || store.release(&grant, None).await.ok()).await;
    tokio::time::timeout(Duration::from_secs(60), freed).await.unwrap();
}

#[tokio::test]
async fn unreadable_lease_fails_alone_in_a_batch() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let store = patient(RedisStore::builder(server.url())).await;
    let mut beats = Vec::new();
    for number in 0..100 {
        let mut claim = claim();
        claim.key = LeaseKey::new(format!("job-{number}")).unwrap();
        let Ok(Obtained::Granted(grant, _)) = store.obtain(&claim).await else { panic!() };
        beats.push((grant, Beat::new(1)));
    }
    server.command("SET lease:{job-41} foreign");

    let answers: Vec<_> = store.heartbeat_all(&beats).collect().await;

    assert_eq!(answers.len(), 100);
    for (place, answer) in answers {
        match answer {
            Ok(answer) => assert_eq!(answer, Heartbeat::Extended, "heartbeat {place}"),
            Err(error) => assert_eq!((place, error.kind()), (41, StoreErrorKind::Corrupt)),
        }
    }
}

#[tokio::test]
async fn unpolled_claims_delay_no_heartbeat() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let store = patient(RedisStore::builder(server.url())).await;
    let grant = granted(&store).await.unwrap();
    let claims: Vec<_> = (0..2000).map(|_| claim()).collect();
    let mut obtaining: Vec<_> = claims.iter().map(|claim| store.obtain(claim)).collect();

    let answered = obtaining.iter_mut().filter_map(FutureExt::now_or_never).count();

    assert_eq!(answered, 0);
    let beat = tokio::time::timeout(TTL, store.heartbeat(&grant, Beat::new(1))).await;
    assert_eq!(beat.unwrap().unwrap(), Heartbeat::Extended);
    tokio::time::timeout(TTL, store.release(&grant, None)).await.unwrap().unwrap();
}

/// Each claim occupies a connection while it waits for the only replica, which has stopped.
#[tokio::test]
async fn unpolled_claims_block_no_pooled_connection() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let mut replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {}", server.port())]);
    until("the replica is linked", || replica.reports_replication("status:up"));
    let store = patient(RedisStore::builder(server.url()).with_replicas(1)).await;
    replica.kill();
    let claims: Vec<_> = (0..20).map(|_| claim()).collect();
    let mut obtaining: Vec<_> = claims.iter().map(|claim| store.obtain(claim)).collect();
    assert_eq!(obtaining.iter_mut().filter_map(FutureExt::now_or_never).count(), 0);

    eventually("a connection is lent", async || {
        let mut other = claim();
        // A claim that timed out may still be granted, so each round uses another key.
        other.key = LeaseKey::new(other.nonce.to_string()).unwrap();
        let refused = store.obtain(&other).await.unwrap_err();
        let reason = std::error::Error::source(&refused).unwrap().to_string();
        reason.contains("0 replicas have the grant").then_some(())
    })
    .await;
}

#[tokio::test]
async fn hung_server_times_out_and_is_used_again_later() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let limit = Duration::from_millis(200);
    let store = RedisStore::builder(server.url()).with_timeout(limit).connect().await.unwrap();
    server.hang();

    let unknown = tokio::time::timeout(limit * 5, store.obtain(&claim())).await.unwrap();

    assert_eq!(unknown.unwrap_err().kind(), StoreErrorKind::Unavailable);
    server.go_on();
    eventually("answered", async || store.holder(&key()).await.ok()).await;
}

#[tokio::test]
async fn tokens_grow_when_a_clock_step_ends_leases_early() {
    let Some(server) = RedisServer::with_clock() else { return };
    let store = patient(RedisStore::builder(server.url())).await;
    let former = granted(&store).await.unwrap();
    assert!(granted(&store).await.is_none());

    server.set_clock("+120");
    let next = eventually("expired early", async || granted(&store).await).await;

    assert!(next.token > former.token, "{} after {}", next.token, former.token);
    let beat = store.heartbeat(&former, Beat::new(1)).await.unwrap();
    assert_eq!(beat, Heartbeat::Lost(lease_core::LossCause::Superseded));
    store.release(&next, None).await.unwrap();

    // Tokens must grow even if the clock steps back by more than an hour.
    server.set_clock("-3600");
    let last = eventually("granted", async || granted(&store).await).await;
    assert!(last.token > next.token, "{} after {}", last.token, next.token);
}
