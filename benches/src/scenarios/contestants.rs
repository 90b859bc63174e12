//! The contestants of several scenarios. The first contestants are the baselines.

use std::net::SocketAddr;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use lease_dynamodb::DynamoDbStore;
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::dynamodb::client_of;

use crate::lock::Lock;
use crate::locks::bare_dynamodb::BareDynamoDb;
use crate::locks::bare_redis::Bare;
use crate::locks::dynamodb_lease::DynamoDbLease;
use crate::locks::dynamodb_lock::DynamoDbLock;
use crate::locks::ours::{Store, WithLocker};
use crate::locks::redlock::Redlock;
use crate::locks::rslock::Rslock;

/// Returns the locks that 1,024 tasks can use at once: all but redlock.
pub(super) async fn on_one(url: &str) -> Vec<Arc<dyn Lock>> {
    let urls = [url.to_owned()];
    let store = RedisStore::connect(url).await.unwrap();
    vec![
        Arc::new(Bare::connect(&urls).await),
        Arc::new(Store(store.clone())),
        Arc::new(WithLocker::new(store)),
        Arc::new(Rslock::new(&urls)),
    ]
}

pub(super) async fn on_quorum(urls: &[String]) -> Vec<Arc<dyn Lock>> {
    let quorum =
        RedisQuorum::builder(urls.to_vec()).without_rejoin_delay().connect().await.unwrap();
    vec![
        Arc::new(Bare::connect(urls).await),
        Arc::new(Store(quorum.clone())),
        Arc::new(WithLocker::new(quorum)),
        Arc::new(Rslock::new(urls)),
        Arc::new(Redlock::new(urls)),
    ]
}

pub(super) async fn on_dynamodb(address: SocketAddr) -> Vec<Arc<dyn Lock>> {
    let client = client_of(address);
    let store = DynamoDbStore::new(client.clone(), "leases");
    vec![
        Arc::new(BareDynamoDb::new(client.clone())),
        Arc::new(Store(store.clone())),
        Arc::new(WithLocker::new(store)),
        Arc::new(DynamoDbLease::with_table(client).await),
        Arc::new(DynamoDbLock::new(format!("http://{address}"), "bench")),
    ]
}

pub(super) async fn make_tables(client: &Client) {
    DynamoDbStore::new(client.clone(), "leases").ensure_table().await.unwrap();
    BareDynamoDb::make_table(client).await;
    DynamoDbLease::make_table(client).await;
    DynamoDbLock::make_table(client).await;
}
