//! Watches: what wakes a waiter, and what ends a watch.

use lease_core::store::LockStore;
use lease_core::{LeaseOptions, Locker};
use lease_register::Register;
use lease_test_servers::claims::{obtain, soon};
use lease_test_servers::etcd::EtcdServer;

use crate::{TTL, builder, key, store};

/// The waiter's next poll would come after an hour.
#[tokio::test]
async fn release_wakes_a_waiter_of_another_process() {
    let Some(server) = EtcdServer::start() else { return };
    let holding = Locker::new(store(&server).await);
    let options = LeaseOptions::default().with_poll_interval(TTL).unwrap();
    let waiting = Locker::new(store(&server).await).with_options(options);
    let lease = holding.wait_until_obtained(&key()).await.unwrap();
    let token = lease.token();
    let waiter = tokio::spawn(async move { waiting.wait_until_obtained(&key()).await.unwrap() });
    lease_test_servers::claims::eventually("it watches", async || {
        (server.requests("Watch") > 0).then_some(())
    })
    .await;

    lease.release().await.unwrap();

    assert!(soon(waiter).await.unwrap().token() > token);
}

#[tokio::test]
async fn ended_connection_wakes_a_waiter() {
    let Some(mut server) = EtcdServer::start() else { return };
    let store = store(&server).await;
    obtain(&store, &key(), "a", TTL).await;
    let watch = store.watch(&key()).await.unwrap();
    assert!(watch.can_wake());

    server.kill();

    soon(watch).await;
}

/// The ping of the connection has no answer.
#[tokio::test]
async fn hung_server_wakes_a_waiter() {
    let Some(server) = EtcdServer::start() else { return };
    let register = builder(&server).connect().await.unwrap();
    let watch = register.changed(&key(), None).await.unwrap();
    assert!(watch.can_wake());

    server.hang();

    soon(watch).await;
    server.resume();
}
