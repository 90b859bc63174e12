//! What the API server answers when it does not do what was asked, and wrong settings.

use std::error::Error;

use lease_core::store::{Beat, Heartbeat, LockStore};
use lease_core::{StoreError, StoreErrorKind};
use lease_kubernetes::{KubernetesRegister, KubernetesStore};
use lease_test_servers::claims::{claim, obtain};
use lease_test_servers::kubernetes::ApiServer;

use crate::{TTL, builder, key, store};

#[track_caller]
pub(crate) fn assert_refused<T>(refused: Result<T, StoreError>, kind: StoreErrorKind, what: &str) {
    let Err(error) = refused else { panic!("not refused: {what}") };
    let text = error.source().unwrap().to_string();

    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(what), "{what:?} is not in {text:?}");
}

#[tokio::test]
async fn refusals_are_explained_and_keep_the_lease() {
    use StoreErrorKind::{Denied, Refused, Throttled, Unavailable};

    let server = ApiServer::start();
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;

    for (code, reason, kind, what) in [
        (401, "Unauthorized", Denied, "token"),
        (403, "Forbidden", Denied, "Access rights"),
        (422, "Invalid", Refused, "256 KiB"),
        (429, "TooManyRequests", Throttled, ""),
        (500, "InternalError", Unavailable, ""),
        (503, "ServiceUnavailable", Unavailable, ""),
        (504, "Timeout", Unavailable, ""),
    ] {
        server.refuse(Some((code, reason)));
        assert_refused(store.heartbeat(&grant, Beat::new(1)).await, kind, what);
        assert_refused(store.obtain(&claim(&key(), "b", TTL)).await, kind, what);
        assert_refused(builder(&server).connect().await, kind, what);
    }

    server.refuse(None);
    assert_eq!(store.heartbeat(&grant, Beat::new(2)).await.unwrap(), Heartbeat::Extended);
}

#[tokio::test]
async fn absent_namespace_is_explained() {
    let server = ApiServer::start();
    let register = builder(&server).with_namespace("absent").connect().await.unwrap();
    let store = KubernetesStore::new(register);

    let refused = store.obtain(&claim(&key(), "a", TTL)).await;

    assert_refused(refused, StoreErrorKind::Misconfigured, "create the namespace");
}

#[tokio::test]
async fn wrong_settings_are_explained() {
    use StoreErrorKind::{Misconfigured, Unavailable};

    let server = ApiServer::start();
    let refused = builder(&server).with_namespace("Billing").connect().await;
    assert_refused(refused, Misconfigured, "\"Billing\" is no name");
    let refused = builder(&server).with_server("a b").connect().await;
    assert_refused(refused, Misconfigured, "give http://HOST:PORT");
    let elsewhere = format!("{}/elsewhere", server.endpoint());
    let refused = builder(&server).with_server(elsewhere).connect().await;
    assert_refused(refused, Misconfigured, "correct the address of the API server");
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let absent = KubernetesRegister::builder().with_server(format!("http://{unused}"));
    assert_refused(absent.with_namespace("a").connect().await, Unavailable, "");
}
