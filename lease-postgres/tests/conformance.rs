//! The promises of lease-core on a server, and on a server behind a pooler.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened, lock_promises, table_promises};
use lease_core::store::LockStore;
use lease_postgres::PostgresStore;
use lease_test_servers::postgres::{PATIENT, PgBouncer, PostgresServer};
use lease_test_servers::promises::{broken_of_both, broken_of_these};

struct OwnTable {
    url: String,
    table: String,
    is_pooled: bool,
    is_batched: bool,
}

impl OwnTable {
    fn at(url: &str) -> Self {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        Self {
            url: url.to_owned(),
            table: format!("promise_{number}"),
            is_pooled: false,
            is_batched: false,
        }
    }

    fn batched(self) -> Self {
        Self { is_batched: true, ..self }
    }

    fn pooled(self) -> Self {
        Self { is_pooled: true, ..self }
    }
}

#[async_trait]
impl Fixture for OwnTable {
    type Store = PostgresStore;

    async fn store(&self) -> PostgresStore {
        let builder = PostgresStore::builder(&self.url).with_table(&self.table);
        let builder = builder.with_timeout(PATIENT).with_connections(4);
        builder.create_table().await.unwrap();
        let builder = if self.is_batched { builder.with_batches_only() } else { builder };
        let store = builder.connect().await.unwrap();
        if self.is_pooled {
            // The first watch learns that no notification arrives, which takes longer than a ttl of the kit.
            drop(store.watch(&"first".parse().unwrap()).await.unwrap());
        }
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

#[test]
fn every_promise_is_kept_by_statements_for_several() {
    let Some(server) = PostgresServer::start() else { return };

    let broken = broken_of_both(|| OwnTable::at(&server.url()).batched());

    assert!(broken.is_empty(), "{broken:?}");
}

/// PgBouncer gives each transaction another connection of the server.
#[test]
fn every_promise_is_kept_behind_a_pooler() {
    let Some(server) = PostgresServer::start() else { return };
    let Some(pooler) = PgBouncer::in_front_of(&server) else { return };

    // Only a queue needs to know beforehand that no notification arrives.
    let queues = |promise: &&'static str| QUEUES.contains(promise);
    let (waiting, others) = promises_of_both().into_iter().partition::<Vec<_>, _>(queues);
    let mut broken = broken_of_these(&waiting, || OwnTable::at(&pooler.url()).pooled());
    broken.extend(broken_of_these(&others, || OwnTable::at(&pooler.url())));

    assert!(broken.is_empty(), "{broken:?}");
}

const QUEUES: [&str; 9] = [
    "waiters_are_granted_in_order_of_arrival",
    "plain_claim_does_not_overtake_a_waiter",
    "place_that_is_not_renewed_is_skipped",
    "renewed_place_is_kept",
    "waiter_that_left_is_skipped",
    "leaving_passes_a_granted_key_on",
    "grant_names_the_last_request_of_its_waiter",
    "expired_key_is_granted_to_its_first_waiter",
    "late_enqueue_holds_the_key_for_at_most_a_ttl",
];

fn promises_of_both() -> Vec<&'static str> {
    let locks = lock_promises::<OwnTable>().into_iter().map(|promise| promise.name);
    locks.chain(table_promises::<OwnTable>().into_iter().map(|promise| promise.name)).collect()
}
