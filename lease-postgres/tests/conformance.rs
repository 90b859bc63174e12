//! The promises of lease-core on a server, and on a server behind a pooler.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened};
use lease_core::store::LockStore;
use lease_postgres::PostgresStore;
use lease_test_servers::postgres::{PATIENT, PgBouncer, PostgresServer};
use lease_test_servers::promises::broken_of_both;

struct OwnTable {
    url: String,
    table: String,
}

impl OwnTable {
    fn at(url: &str) -> Self {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        Self { url: url.to_owned(), table: format!("promise_{number}") }
    }
}

#[async_trait]
impl Fixture for OwnTable {
    type Store = PostgresStore;

    async fn store(&self) -> PostgresStore {
        let builder = PostgresStore::builder(&self.url).with_table(&self.table);
        let builder = builder.with_timeout(PATIENT).with_connections(4);
        builder.create_table().await.unwrap();
        let store = builder.connect().await.unwrap();
        // Behind a pooler, the first call learns that no notification arrives, which takes longer than a ttl of the kit.
        drop(store.watch(&"first".parse().unwrap()).await.unwrap());
        store
    }

    async fn another(&self, _store: &PostgresStore) -> PostgresStore {
        self.store().await
    }

    async fn reopen(&self, store: PostgresStore) -> Reopened<PostgresStore> {
        drop(store);
        Reopened::Intact(self.store().await)
    }
}

#[test]
fn every_promise_is_kept_on_a_server() {
    let Some(server) = PostgresServer::start() else { return };

    let broken = broken_of_both(|| OwnTable::at(&server.url()));

    assert!(broken.is_empty(), "{broken:?}");
}

/// PgBouncer gives each transaction another connection of the server.
#[test]
fn every_promise_is_kept_behind_a_pooler() {
    let Some(server) = PostgresServer::start() else { return };
    let Some(pooler) = PgBouncer::in_front_of(&server) else { return };

    let broken = broken_of_both(|| OwnTable::at(&pooler.url()));

    assert!(broken.is_empty(), "{broken:?}");
}
