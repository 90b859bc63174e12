//! Faults of a single member: a crash, a hang, a lost network, a full disk.

use std::net::SocketAddr;

use etcd_client::Client;
use lease_core::store::{Beat, Heartbeat, LockStore};
use lease_core::{Attempt, Locker, StoreErrorKind};
use lease_etcd::{EtcdRegister, EtcdStore};
use lease_test_servers::claims::{claim, eventually, granted, held, obtain, soon};
use lease_test_servers::etcd::EtcdServer;
use lease_test_servers::proxy::{Flow, Link};

use crate::{SHORT, TTL, assert_refused, builder, key, store};

use StoreErrorKind::Unavailable;

#[tokio::test]
async fn killed_server_keeps_its_leases() {
    let Some(mut server) = EtcdServer::start() else { return };
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;

    server.kill();
    assert_refused(store.heartbeat(&grant, Beat::new(1)).await, Unavailable, "etcd at http://");
    assert_refused(store.obtain(&claim(&key(), "b", TTL)).await, Unavailable, "etcd at http://");
    server.start_again();

    let beat =
        eventually("answered", async || store.heartbeat(&grant, Beat::new(2)).await.ok()).await;
    assert_eq!(beat, Heartbeat::Extended);
    held(store.obtain(&claim(&key(), "b", TTL)).await.unwrap());
    store.release(&grant, None).await.unwrap();
    let next = obtain(&store, &key(), "b", TTL).await;
    assert!(next.token > grant.token);
}

#[tokio::test]
async fn hung_server_times_out_and_is_used_again_later() {
    let Some(server) = EtcdServer::start() else { return };
    let patient = store(&server).await;
    let grant = obtain(&patient, &key(), "a", TTL).await;
    let impatient = EtcdStore::new(builder(&server).with_timeout(SHORT).connect().await.unwrap());

    server.hang();
    let late = soon(impatient.heartbeat(&grant, Beat::new(1))).await;
    assert_refused(late, Unavailable, "did not answer within 500ms");
    server.resume();

    // The late heartbeat may have been applied.
    let beat =
        eventually("answered", async || impatient.heartbeat(&grant, Beat::new(2)).await.ok()).await;
    assert_eq!(beat, Heartbeat::Extended);
}

/// The claim arrives when the network has healed, after its time-out.
#[tokio::test]
async fn claim_whose_answer_was_lost_is_recognised() {
    let Some(server) = EtcdServer::start() else { return };
    let link = Link::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let direct = store(&server).await;
    obtain(&direct, &key(), "z", TTL).await;
    let endpoint = format!("http://{}", link.address());
    let register = EtcdRegister::builder([endpoint]).with_timeout(SHORT);
    let store = EtcdStore::new(register.connect().await.unwrap());
    let claim = claim(&"other".parse().unwrap(), "a", TTL);

    link.set_replies(Flow::Held);
    assert_refused(store.obtain(&claim).await, Unavailable, "did not answer");
    link.heal_with_loss();

    let first = eventually("answered", async || store.obtain(&claim).await.ok()).await;
    let (first, _) = granted(first);
    let (again, _) = granted(direct.obtain(&claim).await.unwrap());
    assert_eq!(again, first, "a repeated claim returns its grant");
}

#[tokio::test]
async fn lease_is_extended_over_a_restart() {
    let Some(mut server) = EtcdServer::start() else { return };
    let locker = Locker::new(store(&server).await);
    let other = Locker::new(store(&server).await);
    let lease = locker.wait_until_obtained(&key()).await.unwrap();

    server.kill();
    server.start_again();

    let attempt = eventually("answered", async || other.obtain(&key()).await.ok()).await;
    assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
    assert!(lease.is_held());
    soon(lease.release()).await.unwrap();
}

#[tokio::test]
async fn full_database_is_explained_until_it_is_compacted() {
    let Some(server) = EtcdServer::with(&["--quota-backend-bytes=8388608"]) else { return };
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let mut client = Client::connect([server.endpoint()], None).await.unwrap();
    while client.put("filling", vec![b'x'; 1_000_000], None).await.is_ok() {}

    let full = eventually("full", async || store.heartbeat(&grant, Beat::new(1)).await.err()).await;

    assert_refused::<()>(Err(full), Unavailable, "`etcdctl alarm disarm`");
    let refused = builder(&server).connect().await;
    assert_refused(refused, Unavailable, "`etcdctl alarm disarm`");
    let revision = client.get("filling", None).await.unwrap().header().unwrap().revision();
    server.etcdctl(&["compaction", "--physical", &revision.to_string()]);
    server.etcdctl(&["defrag"]);
    server.etcdctl(&["alarm", "disarm"]);
    let beat =
        eventually("written", async || store.heartbeat(&grant, Beat::new(1_000_000)).await.ok());
    assert_eq!(beat.await, Heartbeat::Extended);
}
