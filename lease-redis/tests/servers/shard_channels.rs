//! Watches in a Cluster, which use sharded channels.

use lease_core::LeaseKey;
use lease_core::store::LockStore;
use lease_redis::RedisStore;
use lease_test_servers::claims::{self, fresh_key, soon};
use lease_test_servers::redis::{PATIENT, RedisCluster, available};

use crate::setting::{TTL, eventually};
use crate::silent_hosts::key_on;

/// A silent host reports no release. So the watch ends, and its waiter polls again.
#[tokio::test]
async fn watch_on_a_silent_host_of_a_cluster_ends() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
    let watched = key_on(&cluster.nodes[0], "job");
    let freed = eventually("watched", async || store.watch(&watched).await.ok()).await;

    cluster.nodes[0].hang();

    soon(freed).await;
}

#[tokio::test]
async fn channels_without_watches_are_unsubscribed() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let store = RedisStore::cluster(cluster.urls()).with_timeout(PATIENT).connect().await.unwrap();
    let channels = |count: &str| {
        let each = cluster.nodes.iter().map(|node| node.command("PUBSUB SHARDCHANNELS"));
        each.filter(|answer| answer == count).count()
    };
    let keys: Vec<LeaseKey> = (0..100).map(|_| fresh_key("job")).collect();
    let mut watches = Vec::new();
    for key in &keys {
        watches.push(store.watch(key).await.unwrap());
    }
    assert_eq!(channels("*0"), 0);

    drop(watches);

    eventually("unsubscribed", async || (channels("*0") == 3).then_some(())).await;
    let grant = claims::obtain(&store, &keys[0], "a", TTL).await;
    let freed = store.watch(&keys[0]).await.unwrap();
    store.release(&grant, None).await.unwrap();
    soon(freed).await;
}
