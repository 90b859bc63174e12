//! Servers that speak TLS: whom they are trusted by, and whom they trust.

use lease_core::{Beat, Heartbeat, LockStore, StoreErrorKind};
use lease_redis::{RedisQuorum, RedisStore};
use lease_tests::claims::{self, fresh_key, soon};
use lease_tests::redis::{PATIENT, RedisSentinel, available};
use lease_tests::redis_tls::{Admits, Authority};
use redis::{ClientTlsConfig, TlsCertificates};

use crate::setting::{TTL, text};

fn without_client(authority: &Authority) -> TlsCertificates {
    TlsCertificates { client_tls: None, root_cert: Some(authority.read("root.pem")) }
}

fn with_client(authority: &Authority, vouched_by: &Authority) -> TlsCertificates {
    let client_cert = vouched_by.read("client.pem");
    let client = ClientTlsConfig { client_cert, client_key: vouched_by.read("client.key") };
    TlsCertificates { client_tls: Some(client), ..without_client(authority) }
}

/// Over every connection that a store has: for requests, and for watches.
async fn works(store: &dyn LockStore) {
    let key = fresh_key("job");
    let freed = store.watch(&key).await.unwrap();
    let grant = claims::obtain(store, &key, "a", TTL).await;
    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    store.release(&grant, None).await.unwrap();
    soon(freed).await;
}

#[tokio::test]
async fn a_server_is_trusted_by_whom_vouches_for_it_alone() {
    if !available() {
        return;
    }
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server(Admits::Anybody, &[]);
    let builder = RedisStore::builder(server.url()).with_timeout(PATIENT);

    assert!(builder.clone().connect().await.is_err(), "the system does not know it");
    let untrusted = builder.clone().with_certificates(without_client(&stranger));
    assert!(untrusted.connect().await.is_err(), "a stranger does not vouch for it");

    let trusted = builder.with_certificates(without_client(&authority));
    works(&trusted.connect().await.unwrap()).await;
}

#[tokio::test]
async fn a_client_is_let_in_by_its_own_certificate_alone() {
    if !available() {
        return;
    }
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server(Admits::Certified, &[]);
    let builder = RedisStore::builder(server.url()).with_timeout(PATIENT);

    let nobody = builder.clone().with_certificates(without_client(&authority));
    assert!(nobody.connect().await.is_err(), "without a certificate");
    let unknown = builder.clone().with_certificates(with_client(&authority, &stranger));
    assert!(unknown.connect().await.is_err(), "with one that a stranger vouches for");

    let known = builder.with_certificates(with_client(&authority, &authority));
    works(&known.connect().await.unwrap()).await;
}

#[tokio::test]
async fn a_quorum_shows_its_certificate_to_every_node() {
    if !available() {
        return;
    }
    let authority = Authority::new();
    let servers = [(); 3].map(|()| authority.server(Admits::Certified, &[]));
    let urls = servers.iter().map(lease_tests::redis_tls::TlsServer::url);
    let builder = RedisQuorum::builder(urls).without_quarantine().with_timeout(PATIENT);

    let store = builder.with_certificates(with_client(&authority, &authority)).connect().await;

    works(&store.unwrap()).await;
}

/// In a process of its own, whose system trusts the authority.
async fn trusted_by_the_system(authority: &Authority, test: &str, url: &str) {
    let mut process = tokio::process::Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test, "--ignored", "--nocapture"]).kill_on_drop(true);
    process.env("SSL_CERT_FILE", authority.root()).env(URL, url);
    let output = soon(process.output()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{complained}");
}

/// The Sentinel is told of the master's TLS port alone, so a master that was spoken to in the
/// clear would not answer.
#[tokio::test]
async fn a_master_is_reached_by_tls_as_its_sentinels_are() {
    if !available() {
        return;
    }
    let authority = Authority::new();
    let (_servers, url) = authority.sentinel();

    trusted_by_the_system(&authority, "tls::speaks_to_a_master_by_tls", &url).await;
}

#[tokio::test]
async fn a_cluster_is_reached_by_tls() {
    if !available() {
        return;
    }
    let authority = Authority::new();
    let (_cluster, urls) = authority.cluster();

    trusted_by_the_system(&authority, "tls::speaks_to_a_cluster_by_tls", &urls[0]).await;
}

#[ignore = "what a process does that another test starts"]
#[tokio::test]
async fn speaks_to_a_master_by_tls() {
    let Ok(url) = std::env::var(URL) else { return };
    let builder = RedisStore::sentinel([url], RedisSentinel::MASTER).with_timeout(PATIENT);
    works(&builder.connect().await.unwrap()).await;
}

#[ignore = "what a process does that another test starts"]
#[tokio::test]
async fn speaks_to_a_cluster_by_tls() {
    let Ok(url) = std::env::var(URL) else { return };
    let builder = RedisStore::cluster([url]).with_timeout(PATIENT);
    let store = builder.connect().await.unwrap();
    for _ in 0..6 {
        works(&store).await;
    }
}

#[tokio::test]
async fn certificates_that_would_not_be_used_are_refused() {
    if !available() {
        return;
    }
    let authority = Authority::new();
    let url = "rediss://127.0.0.1:1";
    for builder in [RedisStore::cluster([url]), RedisStore::sentinel([url], "leases")] {
        let refused = builder.with_certificates(without_client(&authority)).connect().await;

        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
        assert!(text(&refused).contains("SSL_CERT_FILE"), "{}", text(&refused));
    }
}

const URL: &str = "LEASE_TEST_TLS_URL";
