//! The store on an API server: what other programs see, what they may do, and the errors.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod answers;
mod beside;
mod objects;
mod requests;
mod rights;
mod watching;

use std::time::Duration;

use lease_core::LeaseKey;
use lease_kubernetes::{KubernetesRegister, KubernetesRegisterBuilder, KubernetesStore};
use lease_test_servers::kubernetes::{ApiServer, PATIENT};

/// No lease of these tests expires by itself.
const TTL: Duration = Duration::from_secs(3600);
const NAMESPACE: &str = "billing";

fn key() -> LeaseKey {
    "job".parse().unwrap()
}

fn builder(server: &ApiServer) -> KubernetesRegisterBuilder {
    let builder = KubernetesRegister::builder().with_namespace(NAMESPACE);
    builder.with_server(server.endpoint()).with_timeout(PATIENT)
}

async fn store(server: &ApiServer) -> KubernetesStore {
    KubernetesStore::new(builder(server).connect().await.unwrap())
}
