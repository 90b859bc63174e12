//! Connections from pools of the application.

use std::time::Duration;

use deadpool_redis::{Runtime, cluster, sentinel};
use lease_core::StoreErrorKind;
use lease_core::store::LockStore;
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::claims::{fresh_key, soon};
use lease_test_servers::redis::{
    PATIENT, RedisCluster, RedisSentinel, RedisServer, available, until,
};

use crate::setting::{claim, eventually, servers, text, urls, works};

fn pool(server: &RedisServer, size: usize) -> deadpool_redis::Pool {
    let config = deadpool_redis::Config::from_url(format!("{}/?protocol=resp3", server.url()));
    let builder = config.builder().unwrap().max_size(size).runtime(Runtime::Tokio1);
    builder.build().unwrap()
}

async fn works_again(servers: &[RedisServer], store: &dyn LockStore) {
    for server in servers {
        server.command("CLIENT KILL TYPE normal");
    }
    eventually("connected again", async || store.holder(&fresh_key("job")).await.ok()).await;
    let freed = eventually("watched", async || store.watch(&fresh_key("job")).await.ok()).await;
    drop(freed);
    works(store).await;
}

/// The store removes its connection from the pool, which then opens another connection.
#[tokio::test]
async fn store_shares_a_pool_with_the_application() {
    let Some(servers) = servers::<1>() else { return };
    let shared = pool(&servers[0], 1);
    let builder = RedisStore::builder(servers[0].url()).with_timeout(PATIENT);
    let store = builder.with_pool(shared.clone()).connect().await.unwrap();

    works(&store).await;
    let mut lent = shared.get().await.unwrap();
    let answer: String = redis::cmd("PING").query_async(&mut lent).await.unwrap();
    assert_eq!(answer, "PONG");
    // While the application uses the only pooled connection, the store uses its own.
    works(&store).await;
    drop(lent);
    works_again(&servers, &store).await;
}

#[tokio::test]
async fn exhausted_pool_is_reported_in_time() {
    let Some(servers) = servers::<1>() else { return };
    let shared = pool(&servers[0], 1);
    let lent = shared.get().await.unwrap();
    let limit = Duration::from_millis(300);
    let builder = RedisStore::builder(servers[0].url()).with_timeout(limit);

    let refused = soon(builder.clone().with_pool(shared.clone()).connect()).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Unavailable, "{}", text(&refused));
    drop(lent);
    works(&builder.with_pool(shared).connect().await.unwrap()).await;
}

/// The pool's connections have a time limit of half a second. The wait for replicas may take longer.
#[tokio::test]
async fn time_limit_of_a_pool_does_not_end_the_wait_for_replicas() {
    let Some([server]) = servers() else { return };
    let mut replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {}", server.port())]);
    until("the replica is linked", || replica.reports_replication("status:up"));
    let limit = Duration::from_secs(4);
    let builder = RedisStore::builder(server.url()).with_timeout(limit).with_replicas(1);
    let store = builder.with_pool(pool(&server, 1)).connect().await.unwrap();
    replica.kill();

    let refused = store.obtain(&claim("a")).await.unwrap_err();

    assert!(text(&refused).contains("0 replicas have the grant, not 1"), "{}", text(&refused));
}

#[tokio::test]
async fn quorum_works_on_pools_of_the_application() {
    let Some(servers) = servers::<3>() else { return };
    let pools: Vec<_> = servers.iter().map(|server| pool(server, 1)).collect();
    let builder = RedisQuorum::builder(urls(&servers)).with_pools(pools.clone());
    let store = builder.without_rejoin_delay().with_timeout(PATIENT).connect().await.unwrap();

    works(&store).await;
    assert!(
        pools.iter().all(|pool| pool.status().size == 0),
        "the store has not taken its connection out of the pool"
    );
    works_again(&servers, &store).await;
}

#[tokio::test]
async fn sentinel_store_works_on_a_pool_of_the_application() {
    if !available() {
        return;
    }
    let started = RedisSentinel::start();
    let kind = sentinel::SentinelServerType::Master;
    let master = RedisSentinel::MASTER.to_owned();
    let config = sentinel::Config::from_urls(started.urls(), master, kind);
    let shared = config.create_pool(Some(Runtime::Tokio1)).unwrap();
    let builder = RedisStore::sentinel(started.urls(), RedisSentinel::MASTER);
    let store = builder.with_timeout(PATIENT).with_sentinel_pool(shared).connect().await.unwrap();

    works(&store).await;
}

#[tokio::test]
async fn cluster_store_works_on_a_pool_of_the_application() {
    if !available() {
        return;
    }
    let started = RedisCluster::start(0);
    let config = cluster::Config::from_urls(started.urls());
    let shared = config.create_pool(Some(Runtime::Tokio1)).unwrap();
    let builder = RedisStore::cluster(started.urls()).with_timeout(PATIENT);
    let store = builder.with_cluster_pool(shared).connect().await.unwrap();

    for _ in 0..6 {
        works(&store).await;
    }
}

#[tokio::test]
async fn pool_of_another_kind_is_refused() {
    let Some([server]) = servers() else { return };
    let other = cluster::Config::from_urls([server.url()]);
    let other = other.create_pool(Some(Runtime::Tokio1)).unwrap();

    let refused = RedisStore::builder(server.url()).with_cluster_pool(other).connect().await;

    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
    assert!(text(&refused).contains("the pool is of another kind"), "{}", text(&refused));
}
