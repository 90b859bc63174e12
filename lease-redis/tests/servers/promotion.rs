//! Replicas that are promoted. Rows are those of the README's table *What happens when*.

use lease_core::store::{Beat, Enqueued, Heartbeat, LockStore, Notice};
use lease_core::{LeaseKey, StoreErrorKind};
use lease_redis::RedisStore;
use lease_test_servers::claims::{self, soon};
use lease_test_servers::proxy::Link;
use lease_test_servers::redis::{PATIENT, RedisSentinel, RedisServer, available, until};

use crate::in_turn::{places, queued};
use crate::setting::{
    TTL, assert_superseded, claim, eventually, has_lease, key, obtain, one, one_at, servers, text,
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

/// As in the test above, but a waiter only listens.
#[tokio::test]
async fn subscription_leaves_a_former_master_that_accepts_writes() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::that_promotes();
    let store = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);
    let store = store.with_timeout(PATIENT).connect().await.unwrap();
    let waiter = claim("waiter");
    let mut notices = places(&store).listen(&waiter).await.unwrap();
    let [former, replicas @ ..] = servers.servers.as_slice() else { panic!("no master") };
    assert!(listens(former));
    former.command("ACL SETUSER default -slaveof -replicaof");

    let failover = format!("SENTINEL FAILOVER {}", RedisSentinel::MASTER);
    assert_eq!(servers.sentinels[0].command(&failover), "OK");

    assert_eq!(soon(notices.next()).await, Notice::Missed);
    eventually("the subscription is on the promoted server", async || {
        let _notices = places(&store).listen(&waiter).await.ok()?;
        replicas.iter().any(|server| server.is_master() && listens(server)).then_some(())
    })
    .await;
    assert!(former.is_master(), "the former master was demoted");
}

fn listens(server: &RedisServer) -> bool {
    channels_of_grants(server).contains(":grants:")
}

fn channels_of_grants(server: &RedisServer) -> String {
    let channels = "redis.call('PUBSUB', 'CHANNELS', '*:grants:*')";
    server.command(&format!("EVAL \"return table.concat({channels}, ' ')\" 0"))
}

fn follow(replica: &RedisServer, master: &RedisServer) {
    replica.command(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let linked = || replica.reports_replication("master_link_status:up");
    until("the replica is up to date", linked);
}

fn swap(master: &RedisServer, replica: &RedisServer) {
    replica.command("REPLICAOF NO ONE");
    follow(master, replica);
}

/// The first waiter still listens to the demoted server, which receives the messages of its master.
#[tokio::test]
async fn waiter_on_a_replica_gets_no_grant_that_was_taken_back() {
    let Some([first, second]) = servers() else { return };
    follow(&second, &first);
    let demoted = one(&first).await;
    let held = obtain(&demoted, "a").await;
    let (skipped, next) = (claim("skipped"), claim("next"));
    let mut of_skipped = places(&demoted).listen(&skipped).await.unwrap();
    let answer = places(&demoted).enqueue(&skipped).await.unwrap();
    assert!(matches!(answer, Enqueued::Queued(_)), "{answer:?}");
    until("the replica has the queue", || queued(&second) == 1);
    let channel = channels_of_grants(&first);
    swap(&first, &second);
    let promoted = one(&second).await;
    let mut of_next = places(&promoted).listen(&next).await.unwrap();
    let answer = places(&promoted).enqueue(&next).await.unwrap();
    assert!(matches!(answer, Enqueued::Queued(_)), "{answer:?}");

    promoted.release(&held, None).await.unwrap();

    let Notice::Granted(grant, _) = soon(of_next.next()).await else { panic!("a grant") };
    assert_eq!(grant.nonce, next.nonce);
    // This message comes after all others.
    let nonce = skipped.nonce.get().simple();
    let publish =
        format!("return redis.call('PUBLISH', '{}', '{nonce} 0 0 lease:{{job}}')", channel.trim());
    second.command(&format!("EVAL \"{publish}\" 0"));
    assert_eq!(soon(of_skipped.next()).await, Notice::Missed);
}

/// The name of the server leads to the promoted replica, but the subscription of the waiter stays.
#[tokio::test]
async fn subscription_follows_the_commands_to_a_promoted_replica() {
    let Some([first, second]) = servers() else { return };
    follow(&second, &first);
    let link = Link::start(first.address()).await.unwrap();
    let store = one_at(link.url()).await;
    let _held = obtain(&store, "a").await;
    let waiter = claim("waiter");
    let mut listening = vec![places(&store).listen(&waiter).await.unwrap()];
    places(&store).enqueue(&waiter).await.unwrap();
    until("the replica has the queue", || queued(&second) == 1);

    link.lead_to(second.address());
    swap(&first, &second);

    eventually("the subscription is on the promoted server", async || {
        drop(places(&store).renew(&waiter).await);
        listening.push(places(&store).listen(&waiter).await.ok()?);
        listens(&second).then_some(())
    })
    .await;
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
