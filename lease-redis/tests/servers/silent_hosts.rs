//! Hosts that accept connections and answer no request. The stores have their default time-outs.

use std::time::Duration;

use lease_core::store::{BootClock, Clock, LockStore};
use lease_core::{Lease, LeaseKey, Locker};
use lease_redis::RedisStore;
use lease_test_servers::claims::soon;
use lease_test_servers::redis::{RedisCluster, RedisSentinel, RedisServer, available};

use crate::setting::{eventually, locker, text};

const TTL: Duration = Duration::from_secs(6);

async fn is_kept(lease: &Lease, server: &RedisServer) {
    let beats = || server.last_beat(lease.key().as_str());
    let from = beats();
    eventually("extended", async || {
        assert!(lease.is_held(), "{} is lost", lease.key());
        (beats() > from + 6).then_some(())
    })
    .await;
}

async fn obtained(locker: &Locker, key: &LeaseKey) -> Lease {
    soon(locker.wait_until_obtained(key)).await.unwrap_or_else(|error| panic!("{}", text(&error)))
}

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}

#[tokio::test]
async fn silent_sentinel_delays_neither_connections_nor_watches() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::start();
    for silent in &servers.sentinels {
        silent.hang();
        let builder = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);

        let store = builder.connect().await.unwrap_or_else(|error| panic!("{}", text(&error)));

        let locker = locker(store.clone(), TTL);
        let lease = obtained(&locker, &key("job")).await;
        // On a busy machine, an answer may take longer than the default timeout.
        let freed = eventually("watched", async || store.watch(&key("job")).await.ok()).await;
        lease.release().await.unwrap();
        soon(freed).await;
        silent.go_on();
    }
}

#[tokio::test]
async fn lease_survives_a_killed_connection_with_a_silent_sentinel() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::start();
    let builder = RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER);
    let locker = locker(builder.connect().await.unwrap(), TTL);
    let lease = obtained(&locker, &key("job")).await;
    servers.sentinels[0].hang();

    servers.servers[0].command("CLIENT KILL TYPE normal");

    is_kept(&lease, &servers.servers[0]).await;
    drop(obtained(&locker, &key("other")).await);
}

#[tokio::test]
async fn silent_master_is_replaced_by_the_promoted_replica() {
    if !available() {
        return;
    }
    let (servers, clock) = (RedisSentinel::that_promotes(), BootClock::new());
    let connect = || RedisStore::sentinel(servers.urls(), RedisSentinel::MASTER).connect();
    let running = locker(connect().await.unwrap(), TTL);
    drop(obtained(&running, &key("before")).await);

    // The master's host includes a Sentinel.
    servers.servers[0].hang();
    servers.sentinels[0].hang();

    let job = key("job");
    let waiting = obtained(&running, &job);
    let promoted = async {
        until_async("a replica is promoted", || {
            servers.servers[1..].iter().any(RedisServer::is_master)
        })
        .await;
        clock.now()
    };
    let (lease, promoted) = tokio::join!(waiting, promoted);
    println!("granted {:?} after the promotion", clock.now().since(promoted));
    drop(lease);
    let new = eventually("a new process connects", async || connect().await.ok()).await;
    drop(obtained(&locker(new, TTL), &key("other")).await);
}

/// A replica of the silent master is promoted.
#[tokio::test]
async fn silent_cluster_master_costs_no_lease_on_other_shards() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(1);
    let masters: Vec<_> = cluster.nodes.iter().filter(|node| node.is_master()).collect();
    assert_eq!(masters.len(), 3);
    let running = locker(RedisStore::cluster(cluster.urls()).connect().await.unwrap(), TTL);
    let mut leases = Vec::new();
    for master in &masters[1..] {
        leases.push((obtained(&running, &key_on(master, "kept")).await, *master));
    }
    let (on_silent, later) = (key_on(masters[0], "job"), key_on(masters[0], "later"));
    drop(obtained(&running, &on_silent).await);

    masters[0].hang();

    let clock = BootClock::new();
    let replicas = || cluster.nodes.iter().filter(|node| node.port() != masters[0].port());
    let promoted = async {
        let answers = |node: &RedisServer| !node.command(&get(&on_silent)).starts_with("MOVED");
        until_async("a replica is promoted", || replicas().any(answers)).await;
        clock.now()
    };
    let connected = async {
        let connecting = RedisStore::cluster(cluster.urls()).connect();
        let new = soon(connecting).await.unwrap_or_else(|error| panic!("{}", text(&error)));
        for master in &masters[1..] {
            drop(obtained(&locker(new.clone(), TTL), &key_on(master, "new")).await);
        }
    };
    let kept = async {
        for (lease, master) in &leases {
            is_kept(lease, master).await;
        }
    };
    let waiting = async {
        let lease = obtained(&running, &on_silent).await;
        (lease, clock.now())
    };
    let ((lease, granted), promoted, ..) = tokio::join!(waiting, promoted, connected, kept);
    println!("granted {:?} after the promotion", granted.since(promoted));
    assert!(leases.iter().all(|(lease, _)| lease.is_held()));

    let second = running.wait_until_obtained(&on_silent);
    let (second, released) = tokio::join!(soon(second), lease.release());
    released.unwrap();
    drop(second.unwrap());

    masters[0].go_on();
    drop(obtained(&running, &later).await);
}

#[tokio::test]
async fn silent_cluster_replica_costs_nothing() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(1);
    let replica = cluster.nodes.iter().find(|node| !node.is_master()).unwrap();
    let running = locker(RedisStore::cluster(cluster.urls()).connect().await.unwrap(), TTL);
    let masters: Vec<_> = cluster.nodes.iter().filter(|node| node.is_master()).collect();
    let lease = obtained(&running, &key_on(masters[1], "kept")).await;

    replica.hang();

    let new = soon(RedisStore::cluster(cluster.urls()).connect()).await;
    let new = locker(new.unwrap_or_else(|error| panic!("{}", text(&error))), TTL);
    for master in &masters {
        drop(obtained(&new, &key_on(master, "new")).await);
        drop(obtained(&running, &key_on(master, "running")).await);
    }
    is_kept(&lease, masters[1]).await;
}

pub(crate) fn key_on(master: &RedisServer, name: &str) -> LeaseKey {
    let mut keys = (0..1_000).map(|number| key(&format!("{name}-{number}")));
    keys.find(|key| !master.command(&get(key)).starts_with("MOVED")).unwrap()
}

fn get(key: &LeaseKey) -> String {
    format!("HGET lease:{{{key}}} token")
}

/// Other tasks of the thread continue.
async fn until_async(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, async || is_so().then_some(())).await;
}
