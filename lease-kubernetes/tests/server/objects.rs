//! The object of a key, as `kubectl get lease` shows it.

use std::time::Duration;

use lease_core::store::{Beat, Heartbeat, LeaseTable, LockStore};
use lease_test_servers::claims::obtain;
use lease_test_servers::kubernetes::ApiServer;

use crate::{NAMESPACE, TTL, key, store};

#[tokio::test]
async fn object_of_a_lease_shows_its_holder() {
    let server = ApiServer::start();
    let store = store(&server).await;

    let grant = obtain(&store, &key(), "host-1", Duration::from_millis(14_500)).await;

    let object = server.object(NAMESPACE, "job").unwrap();
    let spec = &object["spec"];
    assert_eq!(spec["holderIdentity"], "host-1");
    assert_eq!(spec["leaseDurationSeconds"], 15, "rounded up");
    assert_eq!(spec["leaseTransitions"], 1);
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    assert_eq!(
        object["metadata"]["annotations"]["lease-kubernetes/token"],
        grant.token.to_string()
    );
}

#[tokio::test]
async fn transitions_count_grants_alone() {
    let server = ApiServer::start();
    let store = store(&server).await;

    for grants in 1..=3 {
        let grant = obtain(&store, &key(), "host-1", TTL).await;
        assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
        store.release(&grant, None).await.unwrap();

        let spec = server.object(NAMESPACE, "job").unwrap()["spec"].clone();
        assert_eq!(spec["leaseTransitions"], grants);
        assert!(spec["holderIdentity"].is_null(), "{spec}");
    }
}

/// Otherwise, client-go would take the key during a hand-over.
#[tokio::test]
async fn reserved_key_shows_its_lessee_as_holder() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "host-1", TTL).await;

    let reserved = Duration::from_secs(30);
    let _applied = store.transfer(&grant, &"host-2".parse().unwrap(), reserved).await.unwrap();

    let spec = server.object(NAMESPACE, "job").unwrap()["spec"].clone();
    assert_eq!(spec["holderIdentity"], "host-2");
    assert_eq!(spec["leaseDurationSeconds"], 30);
}

#[tokio::test]
async fn tokens_grow_over_a_deletion_by_hand() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;

    assert!(server.delete(NAMESPACE, "job"));

    let lost = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert!(matches!(lost, Heartbeat::Lost(_)), "{lost:?}");
    let next = obtain(&store, &key(), "b", TTL).await;
    assert!(next.token > grant.token);
}
