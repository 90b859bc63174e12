//! Compaction: etcd forgets old revisions.

use lease_core::store::{Beat, Heartbeat, LockStore};
use lease_register::Register;
use lease_test_servers::claims::{obtain, soon};
use lease_test_servers::etcd::EtcdServer;

use crate::{TTL, builder, key, store};

fn compact(server: &EtcdServer, revision: u64) {
    server.etcdctl(&["compaction", "--physical", &revision.to_string()]);
}

#[tokio::test]
async fn compaction_keeps_leases_and_tokens() {
    let Some(server) = EtcdServer::start() else { return };
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    let found = store.register().read(&key()).await.unwrap().unwrap();

    compact(&server, found.version.number().unwrap());

    assert_eq!(store.heartbeat(&grant, Beat::new(2)).await.unwrap(), Heartbeat::Extended);
    let deleted = server.etcdctl(&["del", "leases/job"]);
    assert_eq!(deleted, "1", "an operator deletes the record");
    // The revision of the deletion.
    let now = found.version.number().unwrap() + 2;
    compact(&server, now);
    let next = obtain(&store, &key(), "b", TTL).await;
    assert!(next.token > grant.token, "tokens grow, although etcd has forgotten the key");
}

/// etcd cancels the watch of a revision that it has forgotten. The waiter must not miss the change.
#[tokio::test]
async fn watch_of_a_compacted_revision_wakes_at_once() {
    let Some(server) = EtcdServer::start() else { return };
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let old = store.register().read(&key()).await.unwrap().unwrap().version;
    for beat in 1..=3 {
        assert_eq!(store.heartbeat(&grant, Beat::new(beat)).await.unwrap(), Heartbeat::Extended);
    }
    let now = store.register().read(&key()).await.unwrap().unwrap().version;
    compact(&server, now.number().unwrap());
    let register = builder(&server).connect().await.unwrap();

    let watch = register.changed(&key(), Some(&old)).await.unwrap();

    assert!(watch.can_wake());
    soon(watch).await;
}
