//! The store on real servers: requests, faults, watches, rights and wrong settings.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod compaction;
mod faults;
mod members;
mod misconfiguration;
mod requests;
mod rights;
mod watching;

use std::error::Error;
use std::time::Duration;

use lease_core::{LeaseKey, StoreError, StoreErrorKind};
use lease_etcd::{EtcdRegister, EtcdRegisterBuilder, EtcdStore};
use lease_test_servers::etcd::{EtcdServer, PATIENT};

/// No lease of these tests expires by itself.
const TTL: Duration = Duration::from_secs(3600);
/// The time-out of a store that must notice a silent server.
const SHORT: Duration = Duration::from_millis(500);

fn key() -> LeaseKey {
    "job".parse().unwrap()
}

fn builder(server: &EtcdServer) -> EtcdRegisterBuilder {
    EtcdRegister::builder([server.endpoint()]).with_timeout(PATIENT)
}

async fn store(server: &EtcdServer) -> EtcdStore {
    EtcdStore::new(builder(server).connect().await.unwrap())
}

/// Checks the kind of an error, and that its sentence has `what`.
#[track_caller]
fn assert_refused<T>(refused: Result<T, StoreError>, kind: StoreErrorKind, what: &str) {
    let Err(error) = refused else { panic!("not refused: {what}") };
    let text = error.source().unwrap().to_string();

    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(what), "{what:?} is not in {text:?}");
    assert!(!text.contains("secret"), "the password is printed: {text}");
    assert!(![".:", ": :", "..", ".;"].iter().any(|doubled| text.contains(doubled)), "{text}");
}
