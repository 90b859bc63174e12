//! NRL, node-redlock: several keys at once.

use futures_util::StreamExt;
use lease_core::{Beat, Heartbeat, LeaseKey, LockStore};
use lease_redis::RedisStore;
use lease_tests::claims;
use lease_tests::redis::{PATIENT, RedisCluster, available};

use crate::setting::TTL;

/// NRL: several keys at once did not work in a Cluster, whose scripts take those of one slot.
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
