//! Which requests each operation makes, by the API server's own list.

use futures_util::StreamExt;
use lease_core::Locker;
use lease_core::store::{Beat, Heartbeat, LeaseTable, LockStore};
use lease_test_servers::claims::{claim, held, obtain};
use lease_test_servers::kubernetes::ApiServer;

use crate::{NAMESPACE, TTL, key, store};

#[tokio::test]
async fn requests_of_each_operation_are_counted() {
    let server = ApiServer::start();
    let (locker, other) = (Locker::new(store(&server).await), Locker::new(store(&server).await));
    assert_eq!(server.take_requests(), ["list", "list"], "each `connect` checks a right");

    locker.wait_until_obtained(&key()).await.unwrap().release().await.unwrap();
    assert_eq!(server.take_requests(), ["get", "create", "update", "update"], "a new key");
    other.wait_until_obtained(&key()).await.unwrap().release().await.unwrap();
    assert_eq!(server.take_requests(), ["get", "update", "update"], "first contact");
    other.wait_until_obtained(&key()).await.unwrap().release().await.unwrap();
    assert_eq!(server.take_requests(), ["update", "update"], "the same process again");
}

#[tokio::test]
async fn heartbeat_is_one_request() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    server.take_requests();

    for beat in 1..=10 {
        let beat = store.heartbeat(&grant, Beat::new(beat)).await.unwrap();
        assert_eq!(beat, Heartbeat::Extended);
    }
    assert_eq!(server.take_requests(), ["update"; 10]);

    held(store.obtain(&claim(&key(), "b", TTL)).await.unwrap());
    assert_eq!(server.take_requests(), ["get"], "a refused claim writes nothing");
}

/// The first replacement is refused by 409.
#[tokio::test]
async fn heartbeat_after_an_edited_label_is_three_requests() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;
    let edit = || {
        server.edit(NAMESPACE, "job", |object| {
            object["metadata"]["labels"]["team"] = "blue".into();
        });
    };
    edit();
    server.take_requests();

    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    assert_eq!(server.take_requests(), ["update", "get", "update"]);
    assert_eq!(store.heartbeat(&grant, Beat::new(2)).await.unwrap(), Heartbeat::Extended);
    assert_eq!(server.take_requests(), ["update"]);
}

/// A claim of another process replaces the version that this store knows: its next claim is refused by 409.
#[tokio::test]
async fn conflict_shows_the_new_holder() {
    let server = ApiServer::start();
    let (store, other) = (store(&server).await, store(&server).await);
    let grant = obtain(&store, &key(), "a", TTL).await;
    store.release(&grant, None).await.unwrap();
    obtain(&other, &key(), "b", TTL).await;
    server.take_requests();

    let holder = held(store.obtain(&claim(&key(), "a", TTL)).await.unwrap());

    assert_eq!(holder.lessee.as_str(), "b");
    assert_eq!(server.take_requests(), ["update", "get"]);
}

#[tokio::test]
async fn list_is_one_request_for_each_page() {
    let server = ApiServer::start();
    let store = store(&server).await;
    for number in 0..101 {
        let key = format!("job-{number}").parse().unwrap();
        assert!(store.create(&key, &lease_core::Attributes::new()).await.unwrap());
    }
    server.take_requests();

    assert_eq!(LeaseTable::list(&store, "job-").count().await, 101);

    assert_eq!(server.take_requests(), ["list", "list"]);
}
