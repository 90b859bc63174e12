//! Checks every promise of `LockStore` and `LeaseTable` on live servers.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened};
use lease_dynamodb::{Column, DynamoDbStore, DynamoDbStoreBuilder, TimeMode};
use lease_test_servers::dynamodb::Server;
use lease_test_servers::promises::{broken_of_both, broken_of_these};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

struct Dynoxide {
    server: OnceCell<Server>,
    configure: fn(DynamoDbStoreBuilder) -> DynamoDbStoreBuilder,
}

fn dynoxide(configure: fn(DynamoDbStoreBuilder) -> DynamoDbStoreBuilder) -> Dynoxide {
    Dynoxide { server: OnceCell::new(), configure }
}

/// A server on a busy machine may answer late.
fn with_long_timeout(server: &Server, table: impl Into<String>) -> DynamoDbStoreBuilder {
    DynamoDbStore::builder(server.client(), table).with_request_timeout(Duration::from_mins(1))
}

#[async_trait]
impl Fixture for Dynoxide {
    type Store = DynamoDbStore;

    async fn store(&self) -> DynamoDbStore {
        let server = self.server.get_or_init(Server::dynoxide).await;
        let builder = with_long_timeout(server, "leases");
        let store = (self.configure)(builder).build().unwrap();
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
fn observation_alone_keeps_every_promise() {
    let broken = broken_of_both(|| dynoxide(|it| it.with_time_mode(TimeMode::ObservationOnly)));

    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn renamed_columns_keep_every_promise() {
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

struct Shared {
    server: Arc<Server>,
    table: String,
    ttl: Duration,
}

#[async_trait]
impl Fixture for Shared {
    type Store = DynamoDbStore;

    async fn store(&self) -> DynamoDbStore {
        let mut builder = with_long_timeout(&self.server, self.table.as_str());
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

    fn ttl(&self) -> Duration {
        self.ttl
    }
}

/// The time of these servers cannot be paused, and a busy machine may answer too late for a short
/// ttl. So a broken promise is checked again with a longer ttl. Promises about simultaneous
/// requests depend on no ttl, and are not checked again.
#[test]
fn other_servers_keep_every_promise() {
    let runtime = Runtime::new().unwrap();
    for server in runtime.block_on(Server::others()) {
        let name = server.name;
        let server = Arc::new(server);
        let mut broken = broken_on(&runtime, &server, Duration::from_secs(2), None);
        let (at_once, timed): (Vec<_>, Vec<_>) =
            broken.into_iter().partition(|promise| AT_ONCE.contains(promise));
        broken = at_once;
        broken.extend(broken_on(&runtime, &server, Duration::from_secs(30), Some(&timed)));
        assert!(broken.is_empty(), "on {name}: {broken:?}");
    }
}

const AT_ONCE: [&str; 6] = [
    "held_key_is_granted_to_no_other_lessee",
    "claims_through_two_handles_grant_one",
    "adoptions_through_two_handles_grant_one",
    "release_through_second_handle_is_final",
    "creates_through_two_handles_make_one_record",
    "updates_through_two_handles_apply_one",
];

/// Returns the broken promises.
fn broken_on(
    runtime: &Runtime,
    server: &Arc<Server>,
    ttl: Duration,
    named: Option<&[&str]>,
) -> Vec<&'static str> {
    let tables = Mutex::new(Vec::new());
    let fixture = || {
        let mut tables = tables.lock().unwrap();
        let table = format!("{}-{ttl:?}-{}", server.table("leases"), tables.len());
        tables.push(table.clone());
        Shared { server: Arc::clone(server), table, ttl }
    };
    let mut broken = match named {
        Some(names) => broken_of_these(names, fixture),
        None => broken_of_both(fixture),
    };
    if !server.compares_documents() {
        broken.retain(|promise| *promise != "every_type_of_attribute_can_be_expected");
    }
    for table in tables.into_inner().unwrap() {
        let request = server.client().delete_table().table_name(table);
        runtime.block_on(request.send()).unwrap();
    }
    broken
}
