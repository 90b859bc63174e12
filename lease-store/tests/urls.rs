//! Right URLs open their stores. The error of a wrong URL has the remedy, but not the password.
#![cfg(all(feature = "memory", feature = "sqlite", feature = "redis"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::time::Duration;

use lease_core::conformance::{Fixture, Reopened};
use lease_core::store::{Claim, LockStore, Nonce, Obtained, async_trait};
use lease_core::{Attempt, Locker, StoreErrorKind};
use lease_store::{AnyStore, connect, connect_table};
#[cfg(feature = "etcd")]
use lease_test_servers::etcd::EtcdServer;
#[cfg(feature = "kubernetes")]
use lease_test_servers::kubernetes::ApiServer;
#[cfg(feature = "postgres")]
use lease_test_servers::postgres::PostgresServer;
use lease_test_servers::promises::broken;
use lease_test_servers::redis::{RedisCluster, RedisSentinel, RedisServer, available, independent};
use lease_test_servers::tools::memory_folder;

type Wrong = (&'static str, &'static [&'static str]);

const WRONG: [Wrong; 23] = [
    ("", &["is empty", "memory:", "redis://HOST:6379"]),
    (" redis://host", &["blank", "remove it"]),
    ("localhost", &["has no scheme", "this program has memory:"]),
    ("localhost:6379", &["unknown scheme localhost", "redis://HOST:6379"]),
    ("mysql://user:s3cret@host/db", &["mysql://***@host", "unknown scheme mysql", "sqlite://"]),
    ("memory://leases", &["in this process", "memory:NAME"]),
    ("memory:?size=1", &["takes none", "remove it"]),
    ("sqlite:", &["names no file", "sqlite:///var/lib/leases.db"]),
    ("sqlite://leases.db", &["three slashes"]),
    ("sqlite:///tmp/leases.db?timeout=fast", &["no length of time", "500ms"]),
    ("sqlite:///tmp/leases.db?mode=ro", &["unknown parameter \"mode\"", "takes timeout"]),
    ("redis:host", &["no // after", "redis://HOST:6379"]),
    ("redis://", &["empty host", "redis://HOST:6379"]),
    ("redis://user:s3cret@host:port", &["redis://***@host:port", "1 to 65535", "%40"]),
    ("redis://user:s3/cret@host:6379", &["redis://***@host:6379", "%2F"]),
    ("redis://:s3cret@host:99999", &["1 to 65535"]),
    ("redis://host/main?password=s3cret", &["no number", "redis://HOST:6379/0"]),
    ("redis://host?prefxi=a", &["unknown parameter \"prefxi\"", "takes prefix, timeout"]),
    ("redis://a,b", &["several hosts", "redis+quorum://"]),
    ("redis+quorum://:s3cret@a,b", &["2 hosts", "at least 3"]),
    ("redis+quorum://a,,b", &["empty host"]),
    ("redis+sentinel://a:26379,b:26379", &["names no master", "/MASTER"]),
    ("redis+cluster://a,b/0", &["path", "redis+cluster://"]),
];

#[cfg(feature = "dynamodb")]
const WRONG_OF_DYNAMODB: [Wrong; 2] = [
    ("dynamodb://user:s3cret@my table?region=x", &["no table of 3 to 255", "AWS SDK"]),
    ("dynamodb://leases?endpoint=localhost:8000", &["endpoint=http://HOST:PORT"]),
];

#[cfg(feature = "postgres")]
const WRONG_OF_POSTGRES: [Wrong; 9] = [
    ("postgres:host/db", &["no // after", "postgres://USER@HOST/DATABASE"]),
    ("postgres://user:s3cret@/db", &["empty host"]),
    ("postgres://user:s3/cret@host/db", &["postgres://***@host/db", "%2F"]),
    ("postgresql://user:s3cret@host:port/db", &["postgresql://***@host:port", "1 to 65535"]),
    ("postgres://user:s3cret@host", &["names no database", "postgres://USER@HOST/DATABASE"]),
    ("postgres://user:s3cret@host/db?sslmode=verify-full", &["sslmode=require", "certificate"]),
    ("postgres://user:s3cret@host/db?connections=all", &["connections=8"]),
    ("postgres://user:s3cret@host/db?create=yes", &["create=true"]),
    (
        "postgres://user:s3cret@host/db?password=s3cret",
        &["unknown parameter \"password\"", "takes connections"],
    ),
];

#[cfg(feature = "postgres")]
#[tokio::test]
async fn wrong_url_of_postgres_is_explained() {
    explains(&WRONG_OF_POSTGRES).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn table_in_postgres_is_opened() {
    let Some(server) = PostgresServer::start() else { return };
    let at = format!("127.0.0.1:{}", server.port());
    let url = format!("postgres://postgres@{at}/postgres?timeout=60s&table=jobs");
    let missing = connect(&url).await.unwrap_err();
    let text = missing.source().unwrap().to_string();
    assert!(text.contains("no table") && text.contains("create_table"), "{text}");

    share(&format!("{url}&create=true")).await;
    share(&format!("{}&listen={at}&connections=2", url.replace("postgres:", "postgresql:"))).await;

    let store = connect(&url).await.unwrap();
    assert!(store.in_turn().is_some() && store.sessions().is_some());
    connect_table(&url).await.unwrap();
}

#[cfg(feature = "etcd")]
const WRONG_OF_ETCD: [Wrong; 8] = [
    ("etcd:host", &["no // after", "etcd://HOST:2379"]),
    ("etcd://user:s3cret@", &["empty host"]),
    ("etcd://user:s3/cret@host:2379", &["etcd://***@host", "%2F"]),
    ("etcd://user:s3cret@a:2379,b:port", &["etcd://***@a", "1 to 65535"]),
    ("etcd://user@host", &["names a user without a password", "USER:PASSWORD"]),
    ("etcds://user:%ffs3@host", &["not UTF-8"]),
    ("etcd://host?prefix=s3", &["unknown parameter \"prefix\"", "takes timeout"]),
    ("etcd://host//registry", &["begins with /", "etcd://HOST:2379/PREFIX"]),
];

#[cfg(feature = "etcd")]
#[tokio::test]
async fn wrong_url_of_etcd_is_explained() {
    explains(&WRONG_OF_ETCD).await;
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread")]
async fn prefix_in_etcd_is_opened() {
    let Some(server) = EtcdServer::start() else { return };
    for words in ["role add r", "role grant-permission r readwrite --prefix=true billing/"] {
        server.etcdctl(&words.split(' ').collect::<Vec<_>>());
    }
    for words in ["user add me:a@b", "user grant-role me r", "user add root:root"] {
        server.etcdctl(&words.split(' ').collect::<Vec<_>>());
    }
    server.etcdctl(&["user", "grant-role", "root", "root"]);
    // The first port is closed.
    let hosts = format!("127.0.0.1:1,127.0.0.1:{}", server.port());
    share(&format!("etcd://{hosts}?timeout=60s")).await;
    server.etcdctl(&["auth", "enable"]);

    share(&format!("etcd://me:a%40b@{hosts}/billing?timeout=60s")).await;

    let url = format!("etcd://me:a%40b@{hosts}/billing/?timeout=60s");
    connect_table(&url).await.unwrap();
    let elsewhere = connect(&url.replace("billing", "other")).await.unwrap_err();
    assert_eq!(elsewhere.kind(), StoreErrorKind::Denied);
    let wrong = connect(&url.replace("a%40b", "s3cret")).await.unwrap_err();
    assert!(!format!("{wrong:?}").contains("s3cret"), "{wrong:?}");
    let found = server.etcdctl(&["--user=root:root", "get", "--prefix", "--keys-only", ""]);
    let found: Vec<_> = found.split_whitespace().collect();
    assert_eq!(found, ["billing/job", "leases/job"]);
}

#[tokio::test]
async fn wrong_url_is_explained_without_its_password() {
    explains(&WRONG).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test]
async fn wrong_url_of_dynamodb_is_explained() {
    explains(&WRONG_OF_DYNAMODB).await;
}

#[cfg(feature = "kubernetes")]
const WRONG_OF_KUBERNETES: [Wrong; 5] = [
    ("k8s:billing", &["is not k8s://NAMESPACE"]),
    ("k8s://me:s3cret@billing", &["k8s://***@billing", "service account"]),
    ("k8s://billing,other", &["is not k8s://NAMESPACE"]),
    ("k8s://billing/job", &["is not k8s://NAMESPACE"]),
    ("k8s://billing?prefix=s3", &["unknown parameter \"prefix\"", "takes server, timeout"]),
];

#[cfg(feature = "kubernetes")]
#[tokio::test]
async fn wrong_url_of_kubernetes_is_explained() {
    explains(&WRONG_OF_KUBERNETES).await;
}

#[cfg(feature = "kubernetes")]
#[tokio::test]
async fn namespace_of_kubernetes_is_opened() {
    let server = ApiServer::start();

    share(&format!("k8s://billing?server={}&timeout=60s", server.endpoint())).await;

    assert!(server.object("billing", "job").is_some());
}

async fn explains(wrong: &[Wrong]) {
    for (url, parts) in wrong {
        let error = connect(url).await.unwrap_err();

        let text = error.source().unwrap().to_string();
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{url}: {text}");
        for part in *parts {
            assert!(text.contains(part), "{url}: {part:?} is not in {text:?}");
        }
        assert!(!format!("{error:?} {text}").contains("s3"), "{url}: {text}");
    }
}

/// A lease of one handle of `url` must be held for another handle.
async fn share(url: &str) {
    let (one, other) = (connect(url).await.unwrap(), connect(url).await.unwrap());
    let key = "job".parse().unwrap();
    let lease = Locker::new(one).wait_until_obtained(&key).await.unwrap();

    let attempt = Locker::new(other).obtain(&key).await.unwrap();

    assert!(matches!(attempt, Attempt::Held(_)), "{url}: {attempt:?}");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn memory_is_shared_by_its_name() {
    share("memory:").await;
    share("memory:one").await;
    share("MEMORY:").await;
    let claim = |by: &str| {
        let (key, lessee) = ("job".parse().unwrap(), by.parse().unwrap());
        Claim::new(key, lessee, Nonce::random(), Duration::from_secs(60))
    };
    for name in ["memory:two", "memory:three"] {
        let answer = connect(name).await.unwrap().obtain(&claim(name)).await.unwrap();
        assert!(matches!(answer, Obtained::Granted(..)), "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn file_is_opened_by_an_absolute_and_a_relative_path() {
    let folder = tempfile::tempdir_in(memory_folder()).unwrap();
    let path = folder.path().join("all leases.db");
    let encoded = path.to_str().unwrap().replace(' ', "%20");

    share(&format!("sqlite://{encoded}?timeout=5s")).await;

    assert!(path.exists());
    share(&format!("sqlite:{encoded}")).await;
    let store = connect(&format!("sqlite:{encoded}")).await.unwrap();
    assert!(store.in_turn().is_some() && store.sessions().is_some());
    connect_table(&format!("sqlite:{encoded}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_redis_is_opened() {
    if !available() {
        return;
    }
    let patient = "timeout=60s";
    let server = RedisServer::start();
    share(&format!("redis://{}/1?prefix=billing:&{patient}", server.address())).await;
    let hosts = |urls: &[String]| urls.join(",").replace("redis://", "").replace('/', "");
    let sentinels = RedisSentinel::start();
    let (hosts_of, master) = (hosts(&sentinels.urls()), RedisSentinel::MASTER);
    share(&format!("redis+sentinel://{hosts_of}/{master}?{patient}")).await;
    let cluster = RedisCluster::start(0);
    share(&format!("redis+cluster://{}?{patient}", hosts(&cluster.urls()))).await;
    let servers = independent(3);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let url = format!("redis+quorum://{}?{patient}&max_ttl=1s", hosts(&urls));
    assert!(connect(&url).await.unwrap().table().is_none(), "a quorum keeps no records");
    let refused = connect_table(&url).await.unwrap_err();
    let text = refused.source().unwrap().to_string();
    assert!(text.contains("keeps no records"), "{text}");
}

struct Any(tempfile::TempDir);

#[async_trait]
impl Fixture for Any {
    type Store = AnyStore;

    async fn store(&self) -> AnyStore {
        connect(&format!("sqlite://{}/leases.db", self.0.path().display())).await.unwrap()
    }

    async fn another(&self, _store: &AnyStore) -> AnyStore {
        self.store().await
    }

    async fn reopen(&self, store: AnyStore) -> Reopened<AnyStore> {
        drop(store);
        Reopened::Intact(self.store().await)
    }
}

#[test]
fn every_promise_is_kept_behind_a_url() {
    let promises = lease_core::conformance::lock_promises();

    let broken = broken(promises, || Any(tempfile::tempdir_in(memory_folder()).unwrap()));

    assert!(broken.is_empty(), "{broken:?}");
}
