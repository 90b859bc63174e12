//! Connections with TLS.

use lease_core::store::LockStore;
use lease_core::{StoreError, StoreErrorKind};
use lease_postgres::{PostgresStore, PostgresStoreBuilder};
use lease_test_servers::claims::obtain;
use lease_test_servers::postgres::{PATIENT, PostgresServer};
use lease_test_servers::redis::tls::Authority;

use crate::setting::{TTL, builder, key};

fn encrypted(server: &PostgresServer) -> PostgresStoreBuilder {
    let url = server.url().replace("sslmode=disable", "sslmode=require");
    PostgresStore::builder(url).with_timeout(PATIENT)
}

#[track_caller]
fn assert_misconfigured(refused: Result<PostgresStore, StoreError>, advice: &str) {
    let error = refused.unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{text}");
    assert!(text.contains(advice), "{text}");
}

#[tokio::test]
async fn all_connections_are_encrypted() {
    let Some(server) = PostgresServer::start() else { return };
    let authority = Authority::new();
    server.offer_tls(&authority.read("server.pem"), &authority.read("server.key"));
    builder(&server).create_table().await.unwrap();
    let builder = encrypted(&server).with_root_certificates(authority.read("root.pem"));

    let store = builder.connect().await.unwrap();

    obtain(&store, &key(), "a", TTL).await;
    assert!(store.watch(&key()).await.unwrap().can_wake());
    let plain = "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl) \
        FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE query LIKE '%lease%' \
        AND pid <> pg_backend_pid() AND application_name = 'lease-postgres'";
    let counts = server.command(plain);
    assert!(!counts.starts_with("0|") && counts.ends_with("|0"), "{counts}");
}

#[tokio::test]
async fn certificate_of_an_unknown_authority_is_refused() {
    let Some(server) = PostgresServer::start() else { return };
    let (authority, other) = (Authority::new(), Authority::new());
    server.offer_tls(&authority.read("server.pem"), &authority.read("server.key"));

    let refused = encrypted(&server).with_root_certificates(other.read("root.pem")).connect().await;
    assert_misconfigured(refused, "with_root_certificates");
    assert_misconfigured(encrypted(&server).connect().await, "with_root_certificates");
    let refused = encrypted(&server).with_root_certificates("no certificate").connect().await;
    assert_misconfigured(refused, "PEM format");
}

#[tokio::test]
async fn server_without_tls_is_refused_if_it_is_required() {
    let Some(server) = PostgresServer::start() else { return };

    assert_misconfigured(encrypted(&server).connect().await, "sslmode=disable");
}
