//! Users, rights and tokens of users, on a cluster with authentication.

use futures_util::TryStreamExt;
use lease_core::store::{Beat, Heartbeat, LeaseTable, LockStore};
use lease_core::{Change, StoreErrorKind, Written};
use lease_etcd::EtcdStore;
use lease_register::Register;
use lease_test_servers::claims::{obtain, soon};
use lease_test_servers::etcd::EtcdServer;
use lease_test_servers::redis::tls::Authority;

use crate::{TTL, assert_refused, builder, key};

use StoreErrorKind::{Denied, Misconfigured};

/// The role and the user of the README, whose password is `a-password`.
fn with_user(server: &EtcdServer) {
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("# Access rights").unwrap();
    let (_, commands) = section.split_once("```sh\n").unwrap();
    let (commands, _) = commands.split_once("```").unwrap();
    for command in commands.lines() {
        let arguments: Vec<_> = command.strip_prefix("etcdctl ").unwrap().split(' ').collect();
        server.etcdctl(&arguments);
    }
    server.etcdctl(&["user", "add", "root:root-secret"]);
    server.etcdctl(&["user", "grant-role", "root", "root"]);
    server.etcdctl(&["auth", "enable"]);
}

async fn store(server: &EtcdServer) -> EtcdStore {
    let register = builder(server).with_user("leases", "a-password").connect().await;
    EtcdStore::new(register.unwrap())
}

#[tokio::test]
async fn rights_of_the_readme_suffice() {
    let Some(server) = EtcdServer::start() else { return };
    with_user(&server);
    let store = store(&server).await;

    let grant = obtain(&store, &key(), "a", TTL).await;
    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    let change = Change::new().set("sky", "grey");
    assert_eq!(store.update(&grant, &change).await.unwrap(), Written::Applied);
    assert_eq!(LeaseTable::list(&store, "").try_collect::<Vec<_>>().await.unwrap().len(), 1);
    let version = store.register().read(&key()).await.unwrap().unwrap().version;
    let watch = store.register().changed(&key(), Some(&version)).await.unwrap();
    store.release(&grant, None).await.unwrap();

    soon(watch).await;
}

#[tokio::test]
async fn missing_right_or_login_is_explained() {
    let Some(server) = EtcdServer::start() else { return };
    let user = builder(&server).with_user("leases", "secret");
    assert_refused(user.connect().await, Misconfigured, "etcdctl auth enable");
    with_user(&server);

    assert_refused(builder(&server).connect().await, Denied, "give it by `with_user`");
    let wrong = builder(&server).with_user("leases", "secret");
    assert_refused(wrong.connect().await, Denied, "check the user name and the password");
    let unknown = builder(&server).with_user("nobody", "secret");
    assert_refused(unknown.connect().await, Denied, "check the user name and the password");
    let elsewhere = builder(&server).with_user("leases", "a-password").with_prefix("other/");
    assert_refused(elsewhere.connect().await, Denied, "\"Access rights\"");
}

/// A user may read but not write: found at once, and nothing was written.
#[tokio::test]
async fn right_to_read_does_not_suffice() {
    let Some(server) = EtcdServer::start() else { return };
    server.etcdctl(&["role", "add", "reading"]);
    server.etcdctl(&["role", "grant-permission", "reading", "read", "--prefix=true", "leases/"]);
    server.etcdctl(&["user", "add", "reader:secret"]);
    server.etcdctl(&["user", "grant-role", "reader", "reading"]);
    with_user(&server);

    let reader = builder(&server).with_user("reader", "secret");

    assert_refused(reader.connect().await, Denied, "`readwrite`");
    let found = server.etcdctl(&["--user=root:root-secret", "get", "--prefix", ""]);
    assert_eq!(found, "", "the check writes nothing");
}

/// A restarted member knows none of its tokens.
#[tokio::test]
async fn forgotten_token_is_renewed() {
    let Some(mut server) = EtcdServer::start() else { return };
    with_user(&server);
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;

    server.kill();
    server.start_again();
    server.wait_until_ready();

    // The first request may find the connection closed.
    drop(store.heartbeat(&grant, Beat::new(1)).await);
    let beat = store.heartbeat(&grant, Beat::new(2)).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);
}

/// The connection stays open, and the cluster forgets its tokens.
#[tokio::test]
async fn invalid_token_is_renewed_within_the_request() {
    let Some(server) = EtcdServer::start() else { return };
    with_user(&server);
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;

    server.etcdctl(&["--user=root:root-secret", "auth", "disable"]);
    server.etcdctl(&["auth", "enable"]);

    let beat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);
}

/// A token in the form of a JWT has the revision of all users and roles. Any change of them makes it invalid.
#[tokio::test]
async fn token_from_before_a_change_of_users_is_renewed() {
    let keys = Authority::new();
    let folder = keys.root().parent().unwrap().to_owned();
    let run = |arguments: &[&str]| {
        let openssl = std::process::Command::new("openssl");
        let output = { openssl }.args(arguments).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["genrsa", "-out", "jwt.key", "2048"]);
    run(&["rsa", "-in", "jwt.key", "-pubout", "-out", "jwt.pem"]);
    let place = folder.display();
    let option = format!(
        "--auth-token=jwt,pub-key={place}/jwt.pem,priv-key={place}/jwt.key,sign-method=RS256,ttl=1h"
    );
    let Some(server) = EtcdServer::with(&[&option]) else { return };
    with_user(&server);
    let store = store(&server).await;
    let grant = obtain(&store, &key(), "a", TTL).await;

    server.etcdctl(&["--user=root:root-secret", "user", "add", "another:secret"]);

    let old = store.heartbeat(&grant, Beat::new(1)).await;
    assert_refused(old, StoreErrorKind::Unavailable, "revision");
    let beat = store.heartbeat(&grant, Beat::new(2)).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);
}
