//! Kubernetes keeps every promise of a register, of a lock store and of a lease table. A control breaks each mechanism
//! of the register, and the kit finds it.
//!
//! `./test kubernetes` runs this program on a real API server, which KUBECONFIG names. The user of its context `admin` deletes
//! objects.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod sabotage;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config, ResourceExt};
use lease_core::LeaseKey;
use lease_core::conformance::{Fixture, Reopened};
use lease_kubernetes::{KubernetesRegister, KubernetesStore};
use lease_register::conformance::{self as registers, register_promises};
use lease_test_servers::claims::fresh_nonce;
use lease_test_servers::kubernetes::{ApiServer, PATIENT};
use lease_test_servers::promises::broken_of_both;

use crate::sabotage::{Sabotage, Sabotaged};

/// Each promise has a namespace of its own, on one server.
struct OwnNamespace {
    server: Arc<Server>,
    namespace: String,
    sabotage: Sabotage,
}

/// An API server, which runs as long as this value.
struct Server {
    /// `None` if the server is a real one.
    own: Option<ApiServer>,
}

impl Server {
    fn start() -> Arc<Self> {
        Arc::new(Self { own: (!is_real()).then(ApiServer::start) })
    }
}

fn is_real() -> bool {
    std::env::var_os("LEASE_KUBERNETES").is_some()
}

impl OwnNamespace {
    fn with(server: &Arc<Server>, sabotage: Sabotage) -> Self {
        let namespace = format!("promise-{}", fresh_nonce().get());
        Self { server: Arc::clone(server), namespace, sabotage }
    }

    async fn open(&self) -> KubernetesRegister {
        let builder = KubernetesRegister::builder().with_namespace(&self.namespace);
        let builder = builder.with_timeout(PATIENT);
        let builder = match &self.server.own {
            Some(own) => builder.with_server(own.endpoint()),
            None => builder,
        };
        builder.connect().await.unwrap()
    }

    /// The API, without this crate.
    async fn api(&self) -> Api<Lease> {
        let config = if let Some(own) = &self.server.own {
            Config::new(own.endpoint().parse().unwrap())
        } else {
            let context = Some("admin".to_owned());
            let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
            Config::from_kubeconfig(&options).await.unwrap()
        };
        Api::namespaced(Client::try_from(config).unwrap(), &self.namespace)
    }
}

#[async_trait]
impl registers::Fixture for OwnNamespace {
    type Register = Sabotaged;

    async fn register(&self) -> Sabotaged {
        Sabotaged::new(self.open().await, self.sabotage)
    }

    async fn another(&self, _register: &Sabotaged) -> Sabotaged {
        registers::Fixture::register(self).await
    }

    async fn delete(&self, _register: &Sabotaged, key: &LeaseKey) -> bool {
        let api = self.api().await;
        let all = api.list(&ListParams::default()).await.unwrap();
        let found = all.items.into_iter().find(|object| {
            object.annotations().get("lease-kubernetes/key").map(String::as_str)
                == Some(key.as_str())
        });
        api.delete(&found.unwrap().name_any(), &DeleteParams::default()).await.is_ok()
    }
}

#[async_trait]
impl Fixture for OwnNamespace {
    type Store = KubernetesStore;

    async fn store(&self) -> KubernetesStore {
        KubernetesStore::new(self.open().await)
    }

    async fn another(&self, _store: &KubernetesStore) -> KubernetesStore {
        self.store().await
    }

    async fn reopen(&self, store: KubernetesStore) -> Reopened<KubernetesStore> {
        drop(store);
        Reopened::Intact(self.store().await)
    }
}

#[test]
fn every_promise_of_both_traits_is_kept() {
    let server = Server::start();

    let broken = broken_of_both(|| OwnNamespace::with(&server, Sabotage::None));

    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn every_promise_of_a_register_is_kept_and_each_sabotage_is_found() {
    // Broken promises panic, as expected. Printing these panics would hide an unexpected panic.
    std::panic::set_hook(Box::new(|_| ()));

    let wrong: Vec<_> = std::thread::scope(|scope| {
        // Only our own API server can ignore uids.
        let possible =
            EXPECTED.iter().filter(|(sabotage, _)| !is_real() || *sabotage != Sabotage::SendsNoUid);
        let tried = possible.map(|(sabotage, expected)| {
            scope.spawn(move || (sabotage, broken_by(*sabotage), *expected))
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

fn broken_by(sabotage: Sabotage) -> Vec<&'static str> {
    let server = Server::start();
    if let Some(own) = server.own.as_ref().filter(|_| sabotage == Sabotage::SendsNoUid) {
        own.ignore_uids();
    }
    let promises = register_promises::<OwnNamespace>();
    let broken = promises.iter().filter(|promise| {
        let fixture = OwnNamespace::with(&server, sabotage);
        catch_unwind(AssertUnwindSafe(|| (promise.check)(fixture))).is_err()
    });
    broken.map(|promise| promise.name).collect()
}

const EXPECTED: &[(Sabotage, &[&str])] = &[
    (Sabotage::None, &[]),
    (
        Sabotage::ReplacesWhateverIsThere,
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
    (Sabotage::SendsNoUid, &["replacement_of_deleted_record_conflicts"]),
    (Sabotage::ListsOnePage, &["list_has_every_key_of_its_prefix"]),
    (Sabotage::WatchesFromNowOn, &["late_watch_wakes_at_once"]),
];
