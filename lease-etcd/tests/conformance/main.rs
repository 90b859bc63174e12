//! etcd keeps every promise of a register, of a lock store and of a lease table. A control breaks each mechanism of
//! the register, and the kit finds it.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod sabotage;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use etcd_client::Client;
use lease_core::LeaseKey;
use lease_core::conformance::{Fixture, Reopened};
use lease_etcd::{EtcdRegister, EtcdStore};
use lease_register::conformance::{self as registers, register_promises};
use lease_test_servers::etcd::{EtcdServer, PATIENT};
use lease_test_servers::promises::broken_of_both;

use crate::sabotage::{Sabotage, Sabotaged};

/// Each promise has a prefix of its own, on one server.
struct OwnPrefix {
    endpoint: String,
    prefix: String,
    sabotage: Sabotage,
}

impl OwnPrefix {
    fn at(server: &EtcdServer) -> Self {
        Self::with(server, Sabotage::None)
    }

    fn with(server: &EtcdServer, sabotage: Sabotage) -> Self {
        static PREFIXES: AtomicU64 = AtomicU64::new(0);
        let number = PREFIXES.fetch_add(1, Ordering::Relaxed);
        Self { endpoint: server.endpoint(), prefix: format!("promise-{number}/"), sabotage }
    }

    async fn open(&self) -> EtcdRegister {
        let builder = EtcdRegister::builder([&self.endpoint]).with_prefix(&self.prefix);
        builder.with_timeout(PATIENT).connect().await.unwrap()
    }
}

#[async_trait]
impl registers::Fixture for OwnPrefix {
    type Register = Sabotaged;

    async fn register(&self) -> Sabotaged {
        let client = Client::connect([&self.endpoint], None).await.unwrap();
        Sabotaged::new(self.open().await, client, &self.prefix, self.sabotage)
    }

    async fn another(&self, _register: &Sabotaged) -> Sabotaged {
        registers::Fixture::register(self).await
    }

    async fn delete(&self, register: &Sabotaged, key: &LeaseKey) -> bool {
        register.delete(key).await;
        true
    }
}

#[async_trait]
impl Fixture for OwnPrefix {
    type Store = EtcdStore;

    async fn store(&self) -> EtcdStore {
        EtcdStore::new(self.open().await)
    }

    async fn another(&self, _store: &EtcdStore) -> EtcdStore {
        self.store().await
    }

    async fn reopen(&self, store: EtcdStore) -> Reopened<EtcdStore> {
        drop(store);
        Reopened::Intact(self.store().await)
    }
}

#[test]
fn every_promise_of_both_traits_is_kept() {
    let Some(server) = EtcdServer::start() else { return };

    let broken = broken_of_both(|| OwnPrefix::at(&server));

    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn every_promise_of_a_register_is_kept_and_each_sabotage_is_found() {
    let Some(server) = EtcdServer::start() else { return };
    // Broken promises panic, as expected. Printing these panics would hide an unexpected panic.
    std::panic::set_hook(Box::new(|_| ()));

    let wrong: Vec<_> = std::thread::scope(|scope| {
        let tried = EXPECTED.iter().map(|(sabotage, expected)| {
            let server = &server;
            scope.spawn(move || (sabotage, broken_by(server, *sabotage), *expected))
        });
        let tried: Vec<_> = tried.collect();
        tried
            .into_iter()
            .map(|tried| tried.join().unwrap())
            .filter(|tried| tried.1 != tried.2)
            .collect()
    });
    drop(std::panic::take_hook());

    assert!(wrong.is_empty(), "sabotage, broken promises, expected ones: {wrong:#?}");
}

fn broken_by(server: &EtcdServer, sabotage: Sabotage) -> Vec<&'static str> {
    let promises = register_promises::<OwnPrefix>();
    let broken = promises.iter().filter(|promise| {
        let fixture = OwnPrefix::with(server, sabotage);
        catch_unwind(AssertUnwindSafe(|| (promise.check)(fixture))).is_err()
    });
    broken.map(|promise| promise.name).collect()
}

const EXPECTED: &[(Sabotage, &[&str])] = &[
    (Sabotage::None, &[]),
    (
        Sabotage::PutsWithoutCondition,
        &[
            "existing_key_is_not_created",
            "absent_key_has_no_version",
            "stale_replacement_never_applies",
            "repeated_replacement_conflicts",
            "replacement_of_deleted_record_conflicts",
            "one_of_two_replacements_applies",
            "one_of_two_creations_applies",
        ],
    ),
    (Sabotage::ComparesApart, &["one_of_two_replacements_applies", "one_of_two_creations_applies"]),
    (
        Sabotage::VersionCountsWritesOfTheKey,
        &[
            "replacement_of_deleted_record_conflicts",
            "versions_never_come_back",
            "growing_versions_grow_over_deletion",
            // Its list still has the versions of the register.
            "list_is_not_older_than_finished_write",
            "list_has_every_key_of_its_prefix",
        ],
    ),
    (Sabotage::ListsOnePage, &["list_has_every_key_of_its_prefix"]),
    (Sabotage::WatchesFromNowOn, &["late_watch_wakes_at_once"]),
];
