//! Faults of node-redlock.

use futures_util::StreamExt;
use lease_core::LeaseKey;
use lease_core::store::{Beat, Heartbeat, LockStore};
use lease_redis::RedisStore;
use lease_test_servers::claims;
use lease_test_servers::redis::{PATIENT, RedisCluster, available};

use crate::setting::TTL;

/// In node-redlock, several keys at once failed in a Cluster, whose scripts take keys of one slot
/// only.
#[tokio::test]
async fn heartbeats_of_many_keys_span_the_slots_of_a_cluster() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let store = RedisStore::cluster(cluster.urls()).with_timeout(PATIENT);
    let store = store.connect().await.unwrap();
    let mut beats = Vec::new();
    for number in 0..100 {
        let key = LeaseKey::new(format!("job-{number}")).unwrap();
        beats.push((claims::obtain(&store, &key, "a", TTL).await, Beat::new(1)));
    }

    let answers: Vec<_> = store.heartbeat_all(&beats).collect().await;

    assert_eq!(answers.len(), 100);
    for (place, answer) in answers {
        assert_eq!(answer.unwrap(), Heartbeat::Extended, "heartbeat {place}");
    }
}
