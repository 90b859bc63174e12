//! Replicas that are promoted.

use lease_core::{Beat, Heartbeat, LeaseKey, LockStore, StoreErrorKind};
use lease_redis::RedisStore;
use lease_tests::claims;
use lease_tests::redis::{PATIENT, RedisSentinel, RedisServer, available, until};

use crate::setting::{TTL, claim, eventually, has_it, held_twice, key, obtain, one, servers, text};

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
    let mut servers = RedisSentinel::that_promotes();
    let store = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);
    let store = store.with_timeout(PATIENT).connect().await.unwrap();
    // Known to the replicas, so that their counter is behind, not absent.
    let earlier = obtain(&store, "a").await;
    store.release(&earlier, None).await.unwrap();
    until("the replicas know the counter", || {
        let knows = |server: &RedisServer| {
            server.command("HGET lease:{job} granted") == earlier.nonce.to_string()
                && server.command("HEXISTS lease:{job} ends") == "0"
        };
        servers.servers[1..].iter().all(knows)
    });
    stop_replicas(&servers);
    let grant = obtain(&store, "a").await;

    servers.servers[0].kill();
    servers.servers[1..].iter().for_each(RedisServer::go_on);

    held_twice(&store, &grant).await;
}

fn is_master(server: &RedisServer) -> bool {
    server.command("INFO replication").contains("role:master")
}

/// Row "an operator runs `SENTINEL FAILOVER`": the former master accepts writes until Sentinel demotes
/// it, here for ever, since it refuses that.
#[tokio::test]
async fn store_follows_a_failover_while_the_former_master_accepts_writes() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::that_promotes();
    let store = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);
    let store = store.with_timeout(PATIENT).connect().await.unwrap();
    let grant = obtain(&store, "a").await;
    let [former, replicas @ ..] = servers.servers.as_slice() else { panic!("no master") };
    until("both replicas have the lease", || replicas.iter().all(has_it));
    former.command("ACL SETUSER default -slaveof -replicaof");

    let failover = format!("SENTINEL FAILOVER {}", RedisSentinel::MASTER);
    assert_eq!(servers.sentinels[0].command(&failover), "OK");

    let mut count = 0;
    eventually("the promoted server grants", async || {
        count += 1;
        let key: LeaseKey = format!("key-{count}").parse().unwrap();
        let claim = claims::claim(&key, "a", TTL);
        store.obtain(&claim).await.ok()?;
        let is_at = |server: &RedisServer| {
            is_master(server) && server.command(&format!("EXISTS lease:{{{key}}}")) == "1"
        };
        replicas.iter().any(is_at).then_some(())
    })
    .await;
    assert!(is_master(former), "it was demoted");
    let extended = store.heartbeat(&grant, Beat::new(1)).await;
    assert!(matches!(extended, Ok(Heartbeat::Extended)), "{extended:?}");
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
        builder.with_timeout(PATIENT).with_replicas(replicas).connect()
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

/// A server that was master, stood aside, and is master again in the same process: what it granted
/// and then unlearned is not granted under the same token again.
#[tokio::test]
async fn a_token_is_not_repeated_after_a_failover_and_the_way_back() {
    let Some([first, second]) = servers() else { return };
    let follow = |replica: &RedisServer, master: &RedisServer| {
        replica.command(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        let linked = || replica.command("INFO replication").contains("master_link_status:up");
        until("the replica is up to date", linked);
    };
    let store = one(&first).await;
    let earlier = obtain(&store, "a").await;
    store.release(&earlier, None).await.unwrap();
    follow(&second, &first);
    second.command("REPLICAOF NO ONE");
    let unlearned = obtain(&store, "a").await;

    follow(&first, &second);
    first.command("REPLICAOF NO ONE");

    let store = one(&first).await;
    let next = obtain(&store, "b").await;
    assert!(next.token > unlearned.token, "{} after {}", next.token, unlearned.token);
}

/// Who only sends heartbeats hears that the server is no master any more, and looks for another.
#[tokio::test]
async fn heartbeats_to_a_server_that_stood_aside_look_for_the_master() {
    let Some([master, other]) = servers() else { return };
    let store = one(&master).await;
    let grant = obtain(&store, "a").await;
    master.command(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    master.command("CONFIG SET replica-read-only yes");
    let refused = store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Unavailable);

    master.command("REPLICAOF NO ONE");

    // The name leads to a master again: over a new connection, since the old one was given up.
    let connections = master.command("INFO stats");
    assert!(store.heartbeat(&grant, Beat::new(2)).await.is_ok());
    let received = |info: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap()
    };
    let before = received(&connections);
    // One more is the question itself.
    assert!(received(&master.command("INFO stats")) > before + 1, "no new connection was made");
}
