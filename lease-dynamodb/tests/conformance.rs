//! The store keeps every promise of both traits, on live servers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened};
use lease_dynamodb::{Column, DynamoDbStore, DynamoDbStoreBuilder, TimeMode};
use lease_tests::dynamodb::Server;
use lease_tests::promises::broken_of_both;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// A server in this process, of its own for each promise.
struct Dynoxide {
    server: OnceCell<Server>,
    set_up: fn(DynamoDbStoreBuilder) -> DynamoDbStoreBuilder,
}

fn dynoxide(set_up: fn(DynamoDbStoreBuilder) -> DynamoDbStoreBuilder) -> Dynoxide {
    Dynoxide { server: OnceCell::new(), set_up }
}

/// How fast a server is on a machine that has much else to do, is no promise.
fn patient(server: &Server, table: impl Into<String>) -> DynamoDbStoreBuilder {
    DynamoDbStore::builder(server.client(), table).with_request_timeout(Duration::from_mins(1))
}

#[async_trait]
impl Fixture for Dynoxide {
    type Store = DynamoDbStore;

    async fn store(&self) -> DynamoDbStore {
        let server = self.server.get_or_init(Server::dynoxide).await;
        let builder = patient(server, "leases");
        let store = (self.set_up)(builder).build().unwrap();
        store.ensure_table().await.unwrap();
        store
    }

    async fn another(&self, _store: &DynamoDbStore) -> DynamoDbStore {
        self.store().await
    }

    async fn reopen(&self, store: DynamoDbStore) -> Reopened<DynamoDbStore> {
        drop(store);
        Reopened::Intact(self.store().await)
    }
}

lease_core::conformance!(dynoxide(|builder| builder));
lease_core::table_conformance!(dynoxide(|builder| builder));

#[test]
fn every_promise_is_kept_by_observation_alone() {
    let broken = broken_of_both(|| dynoxide(|it| it.with_time_mode(TimeMode::ObservationOnly)));

    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn every_promise_is_kept_on_columns_of_other_names() {
    let broken = broken_of_both(|| {
        dynoxide(|builder| {
            builder
                .with_column(Column::Key, "shard.id")
                .with_column(Column::Lessee, "assigned to")
                .with_column(Column::Token, "counter")
                .without_purging()
        })
    });

    assert!(broken.is_empty(), "{broken:?}");
}

/// A table of its own for each promise, on a server that all of them share.
struct Shared {
    server: Arc<Server>,
    table: String,
}

#[async_trait]
impl Fixture for Shared {
    type Store = DynamoDbStore;

    async fn store(&self) -> DynamoDbStore {
        let mut builder = patient(&self.server, self.table.as_str());
        if !self.server.knows_ttl() {
            builder = builder.without_purging();
        }
        let store = builder.build().unwrap();
        store.ensure_table().await.unwrap();
        store
    }

    async fn another(&self, _store: &DynamoDbStore) -> DynamoDbStore {
        self.store().await
    }

    async fn reopen(&self, store: DynamoDbStore) -> Reopened<DynamoDbStore> {
        drop(store);
        Reopened::Intact(self.store().await)
    }
}

#[test]
fn every_promise_is_kept_on_every_other_server() {
    let runtime = Runtime::new().unwrap();
    for server in runtime.block_on(Server::others()) {
        let name = server.name;
        let server = Arc::new(server);
        let tables = Mutex::new(Vec::new());

        let mut broken = broken_of_both(|| {
            let mut tables = tables.lock().unwrap();
            let table = format!("{}-{}", server.table("leases"), tables.len());
            tables.push(table.clone());
            Shared { server: Arc::clone(&server), table }
        });

        if !server.compares_documents() {
            broken.retain(|promise| *promise != "every_type_of_attribute_can_be_expected");
        }
        for table in tables.into_inner().unwrap() {
            let request = server.client().delete_table().table_name(table);
            runtime.block_on(request.send()).unwrap();
        }
        assert!(broken.is_empty(), "on {name}: {broken:?}");
    }
}
