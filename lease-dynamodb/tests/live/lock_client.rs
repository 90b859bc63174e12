//! Tests on items that Amazon's DynamoDB lock client writes.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::store::LockStore;
use lease_core::{LeaseKey, StoreErrorKind};
use lease_dynamodb::{Column, DynamoDbStoreBuilder};
use lease_test_servers::claims::{claim, fresh_key, held, obtain, take_over};
use lease_test_servers::dynamodb::Server;

use crate::setup::{put_into, s, with_long_timeout};

const LOCKS: &str = "lockTable";

fn on_locks(server: &Server) -> DynamoDbStoreBuilder {
    with_long_timeout(server.client(), LOCKS)
        .with_column(Column::Key, "key")
        .with_column(Column::Lessee, "ownerName")
        .without_purging()
}

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
async fn item_renewed_by_lock_client_is_not_taken() {
    let server = Server::dynoxide().await;
    let store = on_locks(&server).with_lock_client_items().build().unwrap();
    store.ensure_table().await.unwrap();
    let key = fresh_key("job");

    // Each attempt follows a renewal, two ttls after the previous attempt.
    for version in 0..4 {
        renewed_by_lock_client(&server, &key, &format!("v{version}")).await;
        let holder = held(store.obtain(&claim(&key, "b", TTL)).await.unwrap());
        assert_eq!(holder.lessee.as_str(), "host-1");
        tokio::time::sleep(TTL * 2).await;
    }

    // After the last renewal, the lease lasts for the lock client's own duration.
    let grant = take_over(&store, &key, "b", TTL).await;
    assert_eq!(grant.lessee.as_str(), "b");
}

/// The lock client's update keeps the columns of this store.
#[tokio::test]
async fn item_taken_over_by_lock_client_is_not_taken() {
    let server = Server::dynoxide().await;
    let store = on_locks(&server).with_lock_client_items().build().unwrap();
    store.ensure_table().await.unwrap();
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", TTL).await;
    store.release(&grant, None).await.unwrap();
    let token = grant.token.get();
    let left: Vec<_> = [("token", token), ("beat", 0), ("ttl_ms", 200), ("expires_at", 1)]
        .map(|(name, number)| (name, AttributeValue::N(number.to_string())))
        .into();

    for version in 0..4 {
        let row = [renewal(&key, &format!("v{version}")), left.clone()].concat();
        put_into(&server, LOCKS, &row).await;
        held(store.obtain(&claim(&key, "b", TTL)).await.unwrap());
        tokio::time::sleep(TTL * 2).await;
    }
}

#[tokio::test]
async fn item_written_by_another_program_is_not_taken() {
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

/// A condition of 4 KB cannot contain all columns of the item. The lock client renews the version.
#[tokio::test]
async fn large_item_of_lock_client_is_taken_once_unrenewed() {
    let server = Server::dynoxide().await;
    let store = on_locks(&server).with_lock_client_items().build().unwrap();
    store.ensure_table().await.unwrap();
    let key = fresh_key("job");
    let names = names_of_many();

    for version in 0..4 {
        let row = [renewal(&key, &format!("v{version}")), many(&names)].concat();
        put_into(&server, LOCKS, &row).await;
        held(store.obtain(&claim(&key, "b", TTL)).await.unwrap());
        tokio::time::sleep(TTL * 2).await;
    }

    take_over(&store, &key, "b", TTL).await;
}

#[tokio::test]
async fn large_expired_item_of_another_program_is_refused() {
    let server = Server::dynoxide().await;
    let store = on_locks(&server).build().unwrap();
    store.ensure_table().await.unwrap();
    let key = fresh_key("job");
    let names = names_of_many();
    let row = [vec![("key", s(key.as_str())), ("ownerName", s("worker-7"))], many(&names)].concat();
    put_into(&server, LOCKS, &row).await;

    held(store.obtain(&claim(&key, "b", TTL)).await.unwrap());
    let refused = async {
        loop {
            match store.obtain(&claim(&key, "b", TTL)).await {
                Ok(answer) => drop(held(answer)),
                Err(error) => return error,
            }
            tokio::time::sleep(TTL).await;
        }
    };
    let error = tokio::time::timeout(Duration::from_mins(1), refused).await.unwrap();

    assert_eq!(error.kind(), StoreErrorKind::Refused);
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("151 columns") && text.contains("at most 110"), "{text}");
}

fn names_of_many() -> Vec<String> {
    (0..150).map(|number| format!("column_{number}")).collect()
}

fn many(names: &[String]) -> Vec<(&str, AttributeValue)> {
    names.iter().map(|name| (name.as_str(), s("x"))).collect()
}

const TTL: Duration = Duration::from_millis(200);
