//! Wrong endpoints and options: `connect` fails, and its error has advice.

use std::time::Duration;

use lease_core::StoreErrorKind;
use lease_etcd::{EtcdRegister, EtcdStore};
use lease_test_servers::claims::obtain;
use lease_test_servers::etcd::{EtcdServer, PATIENT};
use lease_test_servers::redis::tls::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::{SHORT, TTL, assert_refused, builder, key};

use StoreErrorKind::{Misconfigured, Unavailable};

#[tokio::test]
async fn option_out_of_range_is_refused() {
    let at = |endpoint: &str| EtcdRegister::builder([endpoint]);

    let none = EtcdRegister::builder(Vec::<String>::new());
    assert_refused(none.connect().await, Misconfigured, "http://HOST:2379");
    assert_refused(at("localhost:2379").connect().await, Misconfigured, "http://HOST:2379");
    let login = at("http://leases:secret@localhost:2379");
    assert_refused(login.connect().await, Misconfigured, "with_user");
    assert_refused(at("http://a b").connect().await, Misconfigured, "http://HOST:2379");
    let mixed = EtcdRegister::builder(["http://a:2379", "https://b:2379"]);
    assert_refused(mixed.connect().await, Misconfigured, "some https://");
    let all = at("http://localhost:2379").with_prefix("");
    assert_refused(all.connect().await, Misconfigured, "prefix is empty");
    let never = at("http://localhost:2379").with_timeout(Duration::ZERO);
    assert_refused(never.connect().await, Misconfigured, "1 ms");
}

/// Answers each connection with `answer`.
async fn stranger(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 100];
                drop(client.read(&mut request).await);
                drop(client.write_all(answer).await);
                drop(client.read(&mut request).await);
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn server_that_is_not_etcd_is_explained() {
    const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    const REDIS: &[u8] =
        b"-ERR unknown command 'PRI', with args beginning with: '*' 'HTTP/2.0'\r\n";
    for answer in [HTTP, REDIS] {
        let endpoint = stranger(answer).await;

        let refused = EtcdRegister::builder([endpoint]).with_timeout(PATIENT).connect().await;

        // A member that restarts breaks a connection in the same way.
        assert_refused(refused, Unavailable, "it does not answer like etcd 3");
    }
}

#[tokio::test]
async fn absent_and_silent_servers_are_named() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    let silent = EtcdRegister::builder([&endpoint]).with_timeout(SHORT);
    assert_refused(silent.connect().await, Unavailable, "did not answer within 500ms");
    drop(closed);

    let refused = EtcdRegister::builder([&endpoint]).with_timeout(PATIENT).connect().await;

    assert_refused(refused, Unavailable, &format!("etcd at {endpoint}: "));
}

#[tokio::test]
async fn tls_is_used_and_its_faults_are_explained() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (certificate, key_of_server) = (authority.read("server.pem"), authority.read("server.key"));
    let root = format!("--trusted-ca-file={}", authority.root().display());
    let options = ["--client-cert-auth", &root];
    let Some(server) = EtcdServer::with_tls(&certificate, &key_of_server, &options) else { return };
    let (client, key_of_client) = (authority.read("client.pem"), authority.read("client.key"));
    let trusting = || builder(&server).with_root_certificates(authority.read("root.pem"));
    let register = lease_test_servers::claims::eventually("ready", async || {
        trusting().with_client_certificate(&*client, &*key_of_client).connect().await.ok()
    })
    .await;

    obtain(&EtcdStore::new(register), &key(), "a", TTL).await;

    let plain = server.endpoint().replace("https:", "http:");
    let plain = EtcdRegister::builder([plain]).with_timeout(PATIENT).connect().await;
    assert_refused(plain, Unavailable, "https://");
    let unknown = builder(&server).with_root_certificates(stranger.read("root.pem"));
    assert_refused(unknown.connect().await, Misconfigured, "with_root_certificates");
    // The member's alert may arrive before or after it has closed the connection.
    let anonymous = trusting().connect().await.unwrap_err();
    let kind = anonymous.kind();
    assert!([Misconfigured, Unavailable].contains(&kind), "{anonymous:?}");
    assert_refused::<()>(Err(anonymous), kind, "with_client_certificate");
    let without = EtcdServer::start().unwrap();
    let tls = EtcdRegister::builder([without.endpoint().replace("http:", "https:")]);
    assert_refused(tls.with_timeout(PATIENT).connect().await, Unavailable, "http:// otherwise");
}
