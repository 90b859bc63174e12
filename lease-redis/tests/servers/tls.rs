//! Servers with TLS.

use lease_core::StoreErrorKind;
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::claims::soon;
use lease_test_servers::redis::tls::{Admits, Authority};
use lease_test_servers::redis::{PATIENT, RedisSentinel, available};
use redis::{ClientTlsConfig, TlsCertificates};

use crate::setting::{text, works};

fn without_client(authority: &Authority) -> TlsCertificates {
    TlsCertificates { client_tls: None, root_cert: Some(authority.read("root.pem")) }
}

fn with_client(authority: &Authority, issuer: &Authority) -> TlsCertificates {
    let client_cert = issuer.read("client.pem");
    let client = ClientTlsConfig { client_cert, client_key: issuer.read("client.key") };
    TlsCertificates { client_tls: Some(client), ..without_client(authority) }
}

#[tokio::test]
async fn server_is_trusted_by_its_root_certificate_only() {
    if !available() {
        return;
    }
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server(Admits::All, &[]);
    let builder = RedisStore::builder(server.url()).with_timeout(PATIENT);

    assert!(builder.clone().connect().await.is_err(), "a client without the root connected");
    let untrusted = builder.clone().with_certificates(without_client(&stranger));
    assert!(untrusted.connect().await.is_err(), "a client with another root certificate connected");

    let trusted = builder.with_certificates(without_client(&authority));
    works(&trusted.connect().await.unwrap()).await;
}

#[tokio::test]
async fn client_is_admitted_by_its_certificate_only() {
    if !available() {
        return;
    }
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server(Admits::Certified, &[]);
    let builder = RedisStore::builder(server.url()).with_timeout(PATIENT);

    let anonymous = builder.clone().with_certificates(without_client(&authority));
    assert!(anonymous.connect().await.is_err(), "a client without a certificate connected");
    let unknown = builder.clone().with_certificates(with_client(&authority, &stranger));
    assert!(unknown.connect().await.is_err(), "a client of another root connected");

    let known = builder.with_certificates(with_client(&authority, &authority));
    works(&known.connect().await.unwrap()).await;
}

#[tokio::test]
async fn quorum_presents_its_certificate_to_every_node() {
    if !available() {
        return;
    }
    let authority = Authority::new();
    let servers = [(); 3].map(|()| authority.server(Admits::Certified, &[]));
    let urls = servers.iter().map(lease_test_servers::redis::tls::TlsServer::url);
    let builder = RedisQuorum::builder(urls).without_rejoin_delay().with_timeout(PATIENT);

    let store = builder.with_certificates(with_client(&authority, &authority)).connect().await;

    works(&store.unwrap()).await;
}

/// The child process trusts `authority`, as if its certificate were a system certificate.
async fn run_with_system_trust(authority: &Authority, test: &str, url: &str) {
    let mut process = tokio::process::Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test, "--ignored", "--nocapture"]).kill_on_drop(true);
    process.env("SSL_CERT_FILE", authority.root()).env(URL, url);
    let output = soon(process.output()).await.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
}

/// The Sentinel knows only the master's TLS port.
#[tokio::test]
async fn master_is_reached_by_tls_like_its_sentinels() {
    if !available() {
        return;
    }
    let authority = Authority::new();
    let (_servers, url) = authority.sentinel();

    run_with_system_trust(&authority, "tls::process_connects_to_a_master_by_tls", &url).await;
}

#[tokio::test]
async fn cluster_is_reached_by_tls() {
    if !available() {
        return;
    }
    let authority = Authority::new();
    let (_cluster, urls) = authority.cluster();

    run_with_system_trust(&authority, "tls::process_connects_to_a_cluster_by_tls", &urls[0]).await;
}

#[ignore = "the child process of another test"]
#[tokio::test]
async fn process_connects_to_a_master_by_tls() {
    let Ok(url) = std::env::var(URL) else { return };
    let builder = RedisStore::sentinel([url], RedisSentinel::MASTER).with_timeout(PATIENT);
    works(&builder.connect().await.unwrap()).await;
}

#[ignore = "the child process of another test"]
#[tokio::test]
async fn process_connects_to_a_cluster_by_tls() {
    let Ok(url) = std::env::var(URL) else { return };
    let builder = RedisStore::cluster([url]).with_timeout(PATIENT);
    let store = builder.connect().await.unwrap();
    for _ in 0..6 {
        works(&store).await;
    }
}

#[tokio::test]
async fn unused_certificates_are_refused() {
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
