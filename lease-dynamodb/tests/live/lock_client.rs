//! Items as Amazon's DynamoDB lock client writes them.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::{LeaseKey, LockStore, StoreErrorKind};
use lease_dynamodb::{Column, DynamoDbStore, DynamoDbStoreBuilder};
use lease_tests::claims::{claim, fresh_key, held, obtain, take_over};
use lease_tests::dynamodb::Server;

use crate::world::{put_into, s};

const LOCKS: &str = "lockTable";

/// Its columns, under the names that it calls them.
fn on_locks(server: &Server) -> DynamoDbStoreBuilder {
    DynamoDbStore::builder(server.client(), LOCKS)
        .with_column(Column::Key, "key")
        .with_column(Column::Lessee, "ownerName")
        .without_purging()
}

/// What the lock client puts when it takes a lock, and each time that it renews one.
async fn renewed_by_lock_client(server: &Server, key: &LeaseKey, version: &str) {
    put_into(server, LOCKS, &renewal(key, version)).await;
}

fn renewal(key: &LeaseKey, version: &str) -> Vec<(&'static str, AttributeValue)> {
    vec![
        ("key", s(key.as_str())),
        ("ownerName", s("host-1")),
        ("leaseDuration", s("300")),
        ("recordVersionNumber", s(version)),
    ]
}

#[tokio::test]
async fn item_of_lock_client_is_refused() {
    let server = Server::dynoxide().await;
    let store = on_locks(&server).build().unwrap();
    store.ensure_table().await.unwrap();
    let (renewed, released) = (fresh_key("renewed"), fresh_key("released"));
    renewed_by_lock_client(&server, &renewed, "v1").await;
    let row = [("key", s(released.as_str())), ("isReleased", s("1"))];
    put_into(&server, LOCKS, &row).await;

    for (key, column) in [(renewed, "recordVersionNumber"), (released, "isReleased")] {
        let error = store.obtain(&claim(&key, "b", TTL)).await.unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        let text = std::error::Error::source(&error).unwrap().to_string();
        assert!(text.contains(column) && text.contains("lock client"), "{text}");
        assert!(text.contains("with_lock_client_items"), "{text}");
    }
}

#[tokio::test]
async fn item_that_lock_client_renews_is_never_taken() {
    let server = Server::dynoxide().await;
    let store = on_locks(&server).with_lock_client_items().build().unwrap();
    store.ensure_table().await.unwrap();
    let key = fresh_key("job");

    // Each look is later than a ttl after the last, and sees a renewal.
    for version in 0..4 {
        renewed_by_lock_client(&server, &key, &format!("v{version}")).await;
        let holder = held(store.obtain(&claim(&key, "b", TTL)).await.unwrap());
        assert_eq!(holder.lessee.as_str(), "host-1");
        tokio::time::sleep(TTL * 2).await;
    }

    // It is renewed no more, and lasts for the lock client's own time, which is longer than ours.
    let grant = take_over(&store, &key, "b", TTL).await;
    assert_eq!(grant.lessee.as_str(), "b");
}

/// The token and the beat of this store stay on an item that the lock client takes over.
#[tokio::test]
async fn item_that_lock_client_took_over_is_never_taken() {
    let server = Server::dynoxide().await;
    let store = on_locks(&server).with_lock_client_items().build().unwrap();
    store.ensure_table().await.unwrap();
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", TTL).await;
    store.release(&grant, None).await.unwrap();
    let left: Vec<_> = [("token", grant.token.get()), ("beat", 0), ("ttl_ms", 200)]
        .map(|(name, number)| (name, AttributeValue::N(number.to_string())))
        .into();

    for version in 0..4 {
        let row = [renewal(&key, &format!("v{version}")), left.clone()].concat();
        put_into(&server, LOCKS, &row).await;
        held(store.obtain(&claim(&key, "b", TTL)).await.unwrap());
        tokio::time::sleep(TTL * 2).await;
    }
}

/// Any column of another program's may be its sign of life.
#[tokio::test]
async fn item_that_another_program_writes_is_never_taken() {
    let server = Server::dynoxide().await;
    let store = on_locks(&server).build().unwrap();
    store.ensure_table().await.unwrap();
    let key = fresh_key("job");

    for renewal in 0..4 {
        let row = [
            ("key", s(key.as_str())),
            ("ownerName", s("worker-7")),
            ("renewed", AttributeValue::N(renewal.to_string())),
        ];
        put_into(&server, LOCKS, &row).await;
        let holder = held(store.obtain(&claim(&key, "b", TTL)).await.unwrap());
        assert_eq!(holder.lessee.as_str(), "worker-7");
        tokio::time::sleep(TTL * 2).await;
    }

    take_over(&store, &key, "b", TTL).await;
}

const TTL: Duration = Duration::from_millis(200);
