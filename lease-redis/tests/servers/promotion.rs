//! Replicas that are promoted.

use lease_core::{LockStore, StoreErrorKind};
use lease_redis::RedisStore;
use lease_tests::claims;
use lease_tests::redis::{RedisSentinel, RedisServer, available, until};

use crate::setting::{TTL, claim, eventually, has_it, held_twice, key, obtain, text};

/// Stops the replicas, and breaks what they hear the master by.
fn stop_replicas(servers: &RedisSentinel) {
    servers.servers[1..].iter().for_each(RedisServer::hang);
    servers.servers[0].command("CLIENT KILL TYPE replica");
}

/// Row "a replica is promoted", on one server: the last leases may be forgotten: held twice;
/// tokens go on from its time. On a quorum, replicas are refused: see `misconfiguration.rs`.
#[tokio::test]
async fn a_replica_without_the_last_lease_lets_a_key_be_held_twice_under_growing_tokens() {
    if !available() {
        return;
    }
    let mut servers = RedisSentinel::start();
    let store = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);
    let store = store.connect().await.unwrap();
    // Known to the replicas, so that their counter is behind, not absent.
    let earlier = obtain(&store, "a").await;
    store.release(&earlier, None).await.unwrap();
    until("the replicas know the counter", || {
        let knows = |server: &RedisServer| {
            server.command("HGET lease:{job}:counter last") == earlier.nonce.to_string()
        };
        servers.servers[1..].iter().all(knows)
    });
    stop_replicas(&servers);
    let grant = obtain(&store, "a").await;

    servers.servers[0].kill();
    servers.servers[1..].iter().for_each(RedisServer::go_on);

    held_twice(&store, &grant).await;
}

/// RSN: a grant was given if any replica had it; one of two was promoted that had not.
#[tokio::test]
async fn a_grant_that_fewer_replicas_have_than_were_asked_for_is_given_back() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::start();
    let connect = |replicas| {
        let builder = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);
        builder.with_replicas(replicas).connect()
    };
    let (both, either) = (connect(2).await.unwrap(), connect(1).await.unwrap());
    servers.servers[2].hang();

    let refused = both.obtain(&claim("a")).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Unavailable);
    assert!(text(&refused).contains("1 replicas have the grant, not 2"), "{}", text(&refused));
    assert!(!has_it(&servers.servers[0]), "it was not given back");
    // The other replica is enough for who asks for one.
    eventually("granted", async || {
        let granted = either.obtain(&claims::claim(&key(), "b", TTL)).await.ok()?;
        matches!(granted, lease_core::Obtained::Granted(..)).then_some(())
    })
    .await;
}
