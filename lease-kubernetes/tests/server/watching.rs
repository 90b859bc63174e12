//! Watches and lists of versions that the API server has forgotten: 410 Gone.

use futures_util::StreamExt;
use lease_core::store::{LeaseTable, LockStore};
use lease_core::{Attributes, StoreErrorKind};
use lease_register::Register;
use lease_test_servers::claims::{obtain, soon};
use lease_test_servers::kubernetes::ApiServer;

use crate::{NAMESPACE, TTL, key, store};

/// The waiter must not miss the change.
#[tokio::test]
async fn watch_of_a_compacted_version_wakes_at_once() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let seen = store.register().read(&key()).await.unwrap().unwrap().version;
    store.release(&grant, None).await.unwrap();
    server.compact();

    let watch = store.register().changed(&key(), Some(&seen)).await.unwrap();
    assert!(watch.can_wake());
    soon(watch).await;

    server.refuse(Some((410, "Expired")));
    let watch = store.register().changed(&key(), Some(&seen)).await.unwrap();
    soon(watch).await;
}

/// The holder sends no heartbeat, so its version is forgotten. The waiter must not watch again and again.
#[tokio::test]
async fn waiter_backs_off_if_the_version_of_the_holder_is_compacted() {
    let server = ApiServer::start();
    let store = store(&server).await;
    obtain(&store, &key(), "a", TTL).await;
    server.edit(NAMESPACE, "other", |_| ());
    server.compact();
    server.take_requests();

    soon(store.watch(&key()).await.unwrap()).await;

    assert_eq!(server.take_requests(), ["watch", "get"]);
}

/// The API server ends a watch that has begun by an event with the code 410.
#[tokio::test]
async fn watch_wakes_if_its_version_is_compacted() {
    let server = ApiServer::start();
    let store = store(&server).await;
    obtain(&store, &key(), "a", TTL).await;
    let seen = store.register().read(&key()).await.unwrap().unwrap().version;
    let watch = store.register().changed(&key(), Some(&seen)).await.unwrap();

    // Another object has a newer version.
    server.edit(NAMESPACE, "other", |_| ());
    server.compact();

    soon(watch).await;
}

/// Events of other objects do not wake a waiter.
#[tokio::test]
async fn watch_sees_its_own_object_alone() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let seen = store.register().read(&key()).await.unwrap().unwrap().version;
    let mut watch = store.register().changed(&key(), Some(&seen)).await.unwrap();

    server.edit(NAMESPACE, "job-2", |_| ());
    server.edit("elsewhere", "job", |_| ());
    // Any answer of the server comes after these events, if there are any.
    store.register().read(&key()).await.unwrap();
    assert_eq!(futures_util::poll!(&mut watch), std::task::Poll::Pending);

    store.release(&grant, None).await.unwrap();
    soon(watch).await;
}

#[tokio::test]
async fn list_that_the_server_has_forgotten_fails() {
    let server = ApiServer::start();
    let store = store(&server).await;
    for number in 0..101 {
        let key = format!("job-{number}").parse().unwrap();
        assert!(store.create(&key, &Attributes::new()).await.unwrap());
    }
    let mut list = LeaseTable::list(&store, "job-");
    list.next().await.unwrap().unwrap();
    server.edit(NAMESPACE, "other", |_| ());
    server.compact();

    let listed: Vec<_> = list.collect().await;

    assert_eq!(listed.len(), 100, "the rest of the first page, and an error");
    let error = listed.into_iter().find_map(Result::err).unwrap();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}
