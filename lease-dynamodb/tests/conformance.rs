//! The store keeps every promise of both traits, on a live server.

use async_trait::async_trait;
use lease_core::conformance::Fixture;
use lease_dynamodb::DynamoDbStore;
use lease_tests::dynamodb::Server;
use tokio::sync::OnceCell;

/// A server of its own for each promise.
#[derive(Default)]
struct Dynoxide(OnceCell<Server>);

#[async_trait]
impl Fixture for Dynoxide {
    type Store = DynamoDbStore;

    async fn store(&self) -> DynamoDbStore {
        let server = self.0.get_or_init(Server::dynoxide).await;
        let store = DynamoDbStore::new(server.client(), "leases");
        store.ensure_table().await.unwrap();
        store
    }
}

lease_core::conformance!(Dynoxide::default());
lease_core::table_conformance!(Dynoxide::default());
