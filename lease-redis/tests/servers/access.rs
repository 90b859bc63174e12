//! A user with exactly the rights in the README, on every kind of server.

use std::time::Duration;

use lease_core::store::{Beat, Enqueued, Heartbeat, LeaseTable, LockStore, Notice, Obtained};
use lease_core::{Attributes, Change, StoreErrorKind, Value, Written};
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::claims::{self, fresh_key, soon};
use lease_test_servers::redis::{PATIENT, RedisCluster, RedisSentinel, RedisServer, available};

use futures_util::StreamExt;

use crate::in_turn::places;
use crate::setting::{TTL, claim, eventually, key, obtain, one, one_at, quorum_at, servers};

/// Returns the README's command that creates the user, with the rights `further` added.
fn rights(further: &[&str]) -> String {
    let readme = include_str!("../../README.md");
    let command = readme.lines().find(|line| line.starts_with("ACL SETUSER")).unwrap();
    let prose: String =
        readme.lines().skip_while(|line| !line.starts_with("In a Cluster")).collect();
    for right in further {
        assert!(prose.contains(right), "the README does not name {right}");
    }
    format!("{} {}", command.replace("a-password", "secret"), further.join(" "))
}

const IN_A_CLUSTER: [&str; 7] = [
    "+cluster|slots",
    "+cluster|shards",
    "+spublish",
    "+ssubscribe",
    "+sunsubscribe",
    "+readonly",
    "+asking",
];

fn allow(servers: &[RedisServer], further: &[&str]) {
    for server in servers {
        assert_eq!(server.command(&rights(further)), "OK");
    }
}

fn as_user(urls: Vec<String>) -> Vec<String> {
    urls.into_iter().map(|url| url.replace("redis://", "redis://leases:secret@")).collect()
}

/// Makes a call twice if the second call sends other commands.
async fn locks(store: &dyn LockStore) {
    let key = fresh_key("job");
    let freed = store.watch(&key).await.unwrap();
    let grant = claims::obtain(store, &key, "a", TTL).await;
    claims::held(store.obtain(&claims::claim(&key, "b", TTL)).await.unwrap());
    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    assert_eq!(store.holder(&key).await.unwrap().unwrap().token, Some(grant.token));
    let next = claims::claim(&key, "b", TTL);
    let (next, _) = claims::granted(store.adopt(&grant, &next).await.unwrap());
    store.release(&next, Some(Duration::from_millis(1))).await.unwrap();
    soon(freed).await;

    let again = eventually("the reservation expires", async || {
        match store.obtain(&claims::claim(&key, "c", TTL)).await.unwrap() {
            Obtained::Granted(grant, _) => Some(grant),
            Obtained::Held(_) => None,
        }
    })
    .await;
    let beats = [(again.clone(), Beat::new(1))];
    let answers: Vec<_> = store.heartbeat_all(&beats).collect().await;
    assert!(matches!(answers[..], [(0, Ok(Heartbeat::Extended))]), "{answers:?}");
    store.release(&again, None).await.unwrap();
}

async fn queues(store: &RedisStore) {
    let held = obtain(store, "a").await;
    let waiter = claim("waiter");
    let mut notices = places(store).listen(&waiter).await.unwrap();
    let answer = places(store).enqueue(&waiter).await.unwrap();
    assert!(matches!(answer, Enqueued::Queued(_)), "{answer:?}");
    store.release(&held, None).await.unwrap();
    let notice = soon(notices.next()).await;
    assert!(matches!(notice, Notice::Granted(..)), "{notice:?}");
    places(store).leave(&waiter).await.unwrap();
}

async fn records(store: &dyn LeaseTable) {
    let key = fresh_key("record");
    let attributes =
        |number: &str| Attributes::from([("checkpoint".to_owned(), Value::from(number))]);
    assert!(store.create(&key, &attributes("1")).await.unwrap());
    let grant = claims::obtain(store, &key, "a", TTL).await;
    let change = Change::new().expecting("checkpoint", "1").set("checkpoint", "2");
    let change = change.expecting_none("note");
    assert_eq!(store.update(&grant, &change).await.unwrap(), Written::Applied);
    assert_eq!(store.read(&key).await.unwrap().unwrap().attributes, attributes("2"));
    assert_eq!(store.list("").collect::<Vec<_>>().await.len(), 1);
    assert!(store.evict(&key, &grant.token.into()).await.unwrap());
    store.release(&grant, None).await.unwrap();
    let grant = claims::obtain(store, &key, "a", TTL).await;
    assert_eq!(store.delete(&grant).await.unwrap(), Written::Applied);
    assert!(store.read(&key).await.unwrap().is_none());
}

#[tokio::test]
async fn documented_rights_suffice_on_one_server() {
    let Some(servers) = servers::<1>() else { return };
    allow(&servers, &[]);
    let store = one_at(as_user(vec![servers[0].url()]).remove(0)).await;

    locks(&store).await;
    queues(&store).await;
    records(&store).await;
    assert_eq!(denied(&servers[0]), "", "the server denied a command silently");
}

#[tokio::test]
async fn documented_rights_suffice_on_a_quorum() {
    let Some(servers) = servers::<3>() else { return };
    allow(&servers, &[]);
    let urls = as_user(servers.iter().map(RedisServer::url).collect());
    RedisQuorum::connect(urls.clone()).await.unwrap();
    let store = quorum_at(urls).await;

    locks(&store).await;
    // The heartbeat restores the forgotten grant, and writes the token to the other nodes.
    let key = fresh_key("job");
    // A repeated claim asks all nodes.
    let claim = claims::claim(&key, "a", TTL).repeated();
    let (grant, _) = claims::granted(store.obtain(&claim).await.unwrap());
    // A majority has granted the claim. The request to the last node may still be under way.
    eventually("each node has the lease", async || {
        servers.iter().all(|server| server.lease_left(key.as_str()).is_some()).then_some(())
    })
    .await;
    servers[0].command("FLUSHALL");
    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    let has_lease = || servers[0].lease_left(key.as_str());
    eventually("restored", async || has_lease().map(drop)).await;
    store.release(&grant, None).await.unwrap();
    for server in &servers {
        assert_eq!(denied(server), "");
    }
}

#[tokio::test]
async fn documented_rights_suffice_on_a_cluster() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    allow(&cluster.nodes, &IN_A_CLUSTER);
    let store = RedisStore::cluster(as_user(cluster.urls()));
    let store = store.with_timeout(PATIENT).connect().await.unwrap();

    for _ in 0..6 {
        locks(&store).await;
    }
    records(&store).await;
    for node in &cluster.nodes {
        assert_eq!(denied(node), "");
    }
}

#[tokio::test]
async fn documented_rights_suffice_to_wait_for_replicas() {
    if !available() {
        return;
    }
    let master = RedisServer::with(&["--repl-diskless-sync-delay", "0"]);
    let of = format!("127.0.0.1 {}", master.port());
    let _replica = RedisServer::with(&["--replicaof", &of]);
    let servers = [master];
    allow(&servers, &["+wait", "+unwatch"]);
    let url = as_user(vec![servers[0].url()]).remove(0);
    let builder = RedisStore::builder(url).with_timeout(PATIENT).with_replicas(1);
    let connect = async || builder.clone().connect().await.ok();
    let store = eventually("the replica is connected", connect).await;

    locks(&store).await;
    assert_eq!(denied(&servers[0]), "");
}

#[tokio::test]
async fn documented_rights_suffice_behind_sentinels() {
    if !available() {
        return;
    }
    let started = RedisSentinel::start();
    allow(&started.servers, &["+role"]);
    let user = "ACL SETUSER onlookers on >another +@connection +role +sentinel|masters +subscribe \
                &+switch-master";
    let urls = started.sentinels.iter().map(|sentinel| {
        assert_eq!(sentinel.command(user), "OK");
        sentinel.url().replace("//", "//onlookers:another@")
    });
    let builder = RedisStore::sentinel(urls, RedisSentinel::MASTER).with_timeout(PATIENT);
    let refused = builder.clone().connect().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Denied, "{refused}");
    let store = builder.with_master_login("leases", "secret").connect().await.unwrap();

    locks(&store).await;
    assert_eq!(denied(&started.servers[0]), "");
}

/// Two users share a key, and only one of them may use queues.
#[tokio::test]
async fn user_without_rights_to_queues_releases_a_queued_key() {
    let Some(servers) = servers::<1>() else { return };
    let without = rights(&[]).replace("+rpush +lpop +lrem +lpos +lrange +pubsub|numsub ", "");
    assert!(!without.contains("lpop"), "{without}");
    assert_eq!(servers[0].command(&without), "OK");
    let restricted = one_at(as_user(vec![servers[0].url()]).remove(0)).await;
    let other = one(&servers[0]).await;
    let held = obtain(&restricted, "a").await;
    let waiter = claim("waiter");
    let _notices = places(&other).listen(&waiter).await.unwrap();
    let answer = places(&other).enqueue(&waiter).await.unwrap();
    assert!(matches!(answer, Enqueued::Queued(_)), "{answer:?}");
    assert_eq!(places(&restricted).enqueue(&claim("b")).await.unwrap(), Enqueued::NoQueue);

    restricted.release(&held, None).await.unwrap();

    assert_eq!(other.holder(&key()).await.unwrap(), None);
    let answer = places(&other).renew(&waiter.repeated()).await.unwrap();
    assert!(matches!(answer, Enqueued::Granted(..)), "{answer:?}");
}

fn denied(server: &RedisServer) -> String {
    let stats = server.command("INFO stats");
    let lines = stats.lines().filter(|line| line.starts_with("acl_access_denied"));
    let refused: Vec<_> = lines.filter(|line| !line.trim_end().ends_with(":0")).collect();
    refused.join(" ")
}
