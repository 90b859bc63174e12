//! Lockers that hold leases under a session.

use std::time::Duration;

use futures_util::future::join_all;
use lease_core::store::LockStore;
use lease_core::{
    Attempt, Handed, Lease, LeaseKey, LeaseOptions, Locker, LossCause, Released, Session,
    StoreErrorKind, Ttl,
};
use lease_redis::RedisStore;
use lease_test_servers::claims::soon;
use lease_test_servers::redis::{PATIENT, RedisCluster, available};

use crate::batches::Monitor;
use crate::setting::{TTL, locker, one, quorum, servers};

const MANY: usize = 10_000;

const SHORT: Duration = Duration::from_secs(2);

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}

async fn session(store: &RedisStore, name: &str, ttl: Duration) -> Session {
    soon(Session::start(&locker(store.clone(), ttl), &key(name))).await.unwrap()
}

async fn obtained(locker: &Locker, name: &str) -> Lease {
    soon(locker.wait_until_obtained(&key(name))).await.unwrap()
}

/// While no other leases are claimed, each script is a batch of heartbeats. A server that does not
/// know the script gets its text.
fn keys_of_script(command: &str) -> Option<usize> {
    let (name, script) = command.split_once(" \"")?;
    let (_, arguments) = script.split_once("\" \"").filter(|_| name.starts_with("\"EVAL"))?;
    arguments.split('"').next()?.parse().ok()
}

async fn five_heartbeats(monitor: &mut Monitor) -> Vec<(String, Option<usize>)> {
    let mut commands = Vec::new();
    let mut heartbeats = 0;
    while heartbeats < 5 {
        let command = monitor.next().await;
        // A claim that takes long on a busy machine subscribes to its key until it is granted.
        if command.starts_with("lua ") || command.starts_with("\"UNSUBSCRIBE\"") {
            continue;
        }
        let keys = keys_of_script(&command);
        heartbeats += usize::from(keys.is_some());
        commands.push((command, keys));
    }
    commands
}

#[tokio::test]
async fn ten_thousand_leases_send_the_heartbeat_of_their_session_only() {
    let Some([server]) = servers() else { return };
    let options = LeaseOptions::new(TTL).unwrap().with_heartbeats_per_ttl(60).unwrap();
    let workers = Locker::new(one(&server).await).with_options(options);
    let session = soon(Session::start(&workers, &key("workers/1"))).await.unwrap();
    let names: Vec<_> = (0..MANY).map(|number| format!("shards/{number}")).collect();
    let leases = join_all(names.iter().map(|name| obtained(session.locker(), name))).await;
    let mut monitor = Monitor::start(&server).await;

    let commands = five_heartbeats(&mut monitor).await;

    for (command, keys) in &commands {
        assert_eq!(*keys, Some(1), "no other command is sent: {command}");
        assert!(command.contains("lease:{workers/1}"), "{command}");
    }
    assert!(leases.iter().all(Lease::is_held));
}

#[tokio::test]
async fn hundred_leases_without_a_session_send_heartbeats_for_each() {
    let Some([server]) = servers() else { return };
    let options = LeaseOptions::new(TTL).unwrap().with_heartbeats_per_ttl(60).unwrap();
    let locker = Locker::new(one(&server).await).with_options(options);
    let names: Vec<_> = (0..100).map(|number| format!("shards/{number}")).collect();
    let leases = join_all(names.iter().map(|name| obtained(&locker, name))).await;
    let mut monitor = Monitor::start(&server).await;

    let commands = five_heartbeats(&mut monitor).await;

    let keys: usize = commands.iter().filter_map(|(_, keys)| *keys).sum();
    assert!(keys > 5, "{} leases sent {commands:?}", leases.len());
}

#[tokio::test]
async fn key_of_a_crashed_session_is_granted_after_its_ttl() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let first = session(&store, "workers/1", SHORT).await;
    let (one, two) =
        (obtained(first.locker(), "shard-1").await, obtained(first.locker(), "shard-2").await);
    let second = session(&store, "workers/2", TTL).await;
    assert!(matches!(second.locker().obtain(&key("shard-1")).await.unwrap(), Attempt::Held(_)));

    first.abandon();

    let under = obtained(second.locker(), "shard-1").await;
    let plain = obtained(&locker(store.clone(), TTL), "shard-2").await;
    assert!(under.token() > one.token() && plain.token() > two.token());
    assert_eq!(one.lost().await.cause, LossCause::SessionEnded);
    let holder = store.holder(&key("shard-1")).await.unwrap().unwrap();
    assert_eq!(holder.parent.unwrap().key, key("workers/2"));
}

#[tokio::test]
async fn session_that_is_obtained_again_obtains_its_keys_anew() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let first = session(&store, "workers/1", TTL).await;
    let lease = obtained(first.locker(), "shard").await;

    assert_eq!(first.end().await.unwrap(), Released::Freed);
    let second = session(&store, "workers/1", TTL).await;

    assert!(obtained(second.locker(), "shard").await.token() > lease.token());
}

#[tokio::test]
async fn handed_over_child_outlasts_its_session() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let first = session(&store, "workers/1", TTL).await;
    let lease = obtained(first.locker(), "shard").await;
    let token = lease.token();

    let Handed::Over(handed) = lease.hand_over(Ttl::clamped(TTL)).await.unwrap() else {
        panic!("the lease was held")
    };
    first.end().await.unwrap();

    let second = session(&store, "workers/2", TTL).await;
    let refused = second.locker().obtain(&key("shard")).await.unwrap();
    assert!(matches!(refused, Attempt::Held(_)), "the key is handed over: {refused:?}");
    let resumed = second.locker().resume(handed).await.unwrap().unwrap();
    assert!(resumed.token() > token);
    let holder = store.holder(&key("shard")).await.unwrap().unwrap();
    assert_eq!((holder.token, holder.parent), (Some(resumed.token()), None));
}

#[tokio::test]
async fn eviction_of_a_session_ends_its_children() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let first = session(&store, "workers/1", SHORT).await;
    let lease = obtained(first.locker(), "shard").await;
    let evict = async |name: &str| {
        let holder = store.holder(&key(name)).await.unwrap().unwrap();
        store.evict(&key(name), &holder.grant.unwrap()).await
    };

    assert_eq!(evict("shard").await.unwrap_err().kind(), StoreErrorKind::Refused);
    assert!(evict("workers/1").await.unwrap());

    assert_eq!(soon(lease.lost()).await.cause, LossCause::SessionEnded);
    assert_eq!(soon(first.lease().lost()).await.cause, LossCause::Revoked);
    let second = session(&store, "workers/2", TTL).await;
    assert!(obtained(second.locker(), "shard").await.token() > lease.token());
}

#[tokio::test]
async fn flush_of_the_server_ends_a_session_and_its_children() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let first = session(&store, "workers/1", SHORT).await;
    let lease = obtained(first.locker(), "shard").await;

    server.command("FLUSHALL");

    assert_eq!(soon(lease.lost()).await.cause, LossCause::SessionEnded);
    let second = session(&store, "workers/2", TTL).await;
    assert!(obtained(second.locker(), "shard").await.token() > lease.token());
}

#[tokio::test]
async fn session_in_a_cluster_holds_keys_of_all_nodes() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let store = RedisStore::cluster(cluster.urls()).with_timeout(PATIENT).connect().await.unwrap();
    let first = session(&store, "workers/1", SHORT).await;
    let names: Vec<_> = (0..32).map(|number| format!("shards/{number}")).collect();
    let leases = join_all(names.iter().map(|name| obtained(first.locker(), name))).await;
    let second = session(&store, "workers/2", TTL).await;

    first.abandon();

    let next = join_all(names.iter().map(|name| obtained(second.locker(), name))).await;
    assert!(next.iter().zip(&leases).all(|(next, lease)| next.token() > lease.token()));
}

#[tokio::test]
async fn quorum_has_no_sessions() {
    let Some(servers) = servers::<3>() else { return };
    let locker = locker(quorum(&servers).await, TTL);
    let lease = obtained(&locker, "workers/1").await;

    let refused = locker.under(&lease).unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Unsupported);
}
