//! Replicas that are promoted. Rows are those of the README's table *What happens when*.

use lease_core::store::{Beat, Heartbeat, LockStore};
use lease_core::{LeaseKey, StoreErrorKind};
use lease_redis::RedisStore;
use lease_test_servers::claims;
use lease_test_servers::redis::{PATIENT, RedisSentinel, RedisServer, available, until};

use crate::setting::{
    TTL, assert_superseded, claim, eventually, has_lease, key, obtain, one, servers, text,
};

fn stop_replicas(servers: &RedisSentinel) {
    servers.servers[1..].iter().for_each(RedisServer::hang);
    servers.servers[0].command("CLIENT KILL TYPE replica");
}

/// Row "a replica is promoted", on one server. A quorum refuses replicas (`misconfiguration.rs`).
#[tokio::test]
async fn promoted_replica_without_the_lease_causes_two_holders() {
    if !available() {
        return;
    }
    let mut servers = RedisSentinel::that_promotes();
    let store = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);
    let store = store.with_timeout(PATIENT).connect().await.unwrap();
    // The replicas then have an outdated last token.
    let earlier = obtain(&store, "a").await;
    store.release(&earlier, None).await.unwrap();
    until("the replicas know a token", || {
        let knows = |server: &RedisServer| {
            server.command("EXISTS lease:tokens") == "1"
                && server.command("EXISTS lease:{job}") == "0"
        };
        servers.servers[1..].iter().all(knows)
    });
    stop_replicas(&servers);
    let grant = obtain(&store, "a").await;

    servers.servers[0].kill();
    servers.servers[1..].iter().for_each(RedisServer::go_on);

    assert_superseded(&store, &grant).await;
}

/// Row "an operator runs `SENTINEL FAILOVER`". The former master refuses to be demoted.
#[tokio::test]
async fn store_leaves_a_former_master_that_accepts_writes() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::that_promotes();
    let store = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);
    let store = store.with_timeout(PATIENT).connect().await.unwrap();
    let grant = obtain(&store, "a").await;
    let [former, replicas @ ..] = servers.servers.as_slice() else { panic!("no master") };
    until("both replicas have the lease", || replicas.iter().all(has_lease));
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
            server.is_master() && server.command(&format!("EXISTS lease:{{{key}}}")) == "1"
        };
        replicas.iter().any(is_at).then_some(())
    })
    .await;
    assert!(former.is_master(), "the former master was demoted");
    let extended = store.heartbeat(&grant, Beat::new(1)).await;
    assert!(matches!(extended, Ok(Heartbeat::Extended)), "{extended:?}");
}

/// In redisson, a grant on one replica sufficed, and a replica without the grant could be promoted.
#[tokio::test]
async fn grant_on_too_few_replicas_is_released() {
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
    assert!(!has_lease(&servers.servers[0]), "the grant was not released");
    eventually("granted", async || {
        let granted = either.obtain(&claims::claim(&key(), "b", TTL)).await.ok()?;
        matches!(granted, lease_core::store::Obtained::Granted(..)).then_some(())
    })
    .await;
}

/// The server lost a grant as a replica.
#[tokio::test]
async fn token_is_not_repeated_after_failover_and_failback() {
    let Some([first, second]) = servers() else { return };
    let follow = |replica: &RedisServer, master: &RedisServer| {
        replica.command(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        let linked = || replica.reports_replication("master_link_status:up");
        until("the replica is up to date", linked);
    };
    let store = one(&first).await;
    let earlier = obtain(&store, "a").await;
    store.release(&earlier, None).await.unwrap();
    follow(&second, &first);
    second.command("REPLICAOF NO ONE");
    let lost = obtain(&store, "a").await;

    follow(&first, &second);
    first.command("REPLICAOF NO ONE");

    let store = one(&first).await;
    let next = obtain(&store, "b").await;
    assert!(next.token > lost.token, "{} after {}", next.token, lost.token);
}

/// The client only sends heartbeats.
#[tokio::test]
async fn heartbeat_to_a_demoted_master_opens_a_new_connection() {
    let Some([master, other]) = servers() else { return };
    let store = one(&master).await;
    let grant = obtain(&store, "a").await;
    master.command(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    master.command("CONFIG SET replica-read-only yes");
    let refused = store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Unavailable);

    master.command("REPLICAOF NO ONE");

    // The server closed the old connection, so the client needs a new one.
    let connections = master.command("INFO stats");
    assert!(store.heartbeat(&grant, Beat::new(2)).await.is_ok());
    let received = |info: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap()
    };
    let before = received(&connections);
    assert!(received(&master.command("INFO stats")) > before + 1, "no new connection was made");
}
