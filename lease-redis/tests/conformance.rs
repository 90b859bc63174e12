//! Checks the promises of lease-core on both stores, on every supported kind of server.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::StoreError;
use lease_core::conformance::{Fixture, Reopened, lock_promises};
use lease_core::store::LockStore;
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::claims::soon;
use lease_test_servers::promises::{broken, broken_of_both};
use lease_test_servers::redis::{
    PATIENT, RedisCluster, RedisSentinel, RedisServer, available, independent,
};
use tokio::time::sleep;

type Open<S> = fn(&[String], String) -> Opening<S>;
type Opening<S> = std::pin::Pin<Box<dyn Future<Output = Result<S, StoreError>> + Send>>;

struct Shared<S: 'static> {
    urls: Vec<String>,
    open: Open<S>,
    prefix: String,
    memory: Memory,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    OfReleases,
    /// A lock on one logical server leaves no data.
    None,
    /// The last token. The nodes of a quorum grant a repeated claim under a new token.
    OfTokens,
}

fn shared<S: LockStore>(urls: &[String], open: Open<S>, memory: Memory) -> Shared<S> {
    static PREFIXES: AtomicU64 = AtomicU64::new(0);
    let prefix = format!("promise-{}:", PREFIXES.fetch_add(1, Ordering::Relaxed));
    Shared { urls: urls.to_vec(), open, prefix, memory }
}

#[async_trait]
impl<S: LockStore> Fixture for Shared<S> {
    type Store = S;

    async fn store(&self) -> S {
        // A connection through Sentinels may time out on a busy machine.
        soon(async {
            loop {
                match (self.open)(&self.urls, self.prefix.clone()).await {
                    Err(error) if error.is_retryable() => sleep(Duration::from_millis(25)).await,
                    opened => return opened.unwrap(),
                }
            }
        })
        .await
    }

    async fn another(&self, _store: &S) -> S {
        self.store().await
    }

    async fn reopen(&self, store: S) -> Reopened<S> {
        drop(store);
        Reopened::Intact(self.store().await)
    }

    fn remembers_released_nonces(&self) -> bool {
        self.memory == Memory::OfReleases
    }

    fn grants_repeated_claims_anew(&self) -> bool {
        self.memory == Memory::OfTokens
    }
}

fn on_one_server(urls: &[String], prefix: String) -> Opening<RedisStore> {
    let builder = RedisStore::builder(urls[0].as_str());
    Box::pin(builder.with_timeout(PATIENT).with_prefix(prefix).connect())
}

fn behind_sentinels(urls: &[String], prefix: String) -> Opening<RedisStore> {
    let builder = RedisStore::sentinel(urls, RedisSentinel::MASTER);
    Box::pin(builder.with_timeout(PATIENT).with_prefix(prefix).connect())
}

fn behind_sentinels_with_a_replica(urls: &[String], prefix: String) -> Opening<RedisStore> {
    let builder = RedisStore::sentinel(urls, RedisSentinel::MASTER).with_replicas(1);
    Box::pin(builder.with_timeout(PATIENT).with_prefix(prefix).connect())
}

fn on_a_cluster(urls: &[String], prefix: String) -> Opening<RedisStore> {
    let builder = RedisStore::cluster(urls);
    Box::pin(builder.with_timeout(PATIENT).with_prefix(prefix).connect())
}

fn on_a_quorum(urls: &[String], prefix: String) -> Opening<RedisQuorum> {
    let builder = RedisQuorum::builder(urls).without_rejoin_delay();
    Box::pin(builder.with_timeout(PATIENT).with_prefix(prefix).connect())
}

#[test]
fn every_promise_is_kept_on_one_server() {
    if !available() {
        return;
    }
    let server = RedisServer::start();

    keeps_both(&[server.url()], on_one_server, Memory::None);
}

#[test]
fn every_promise_is_kept_behind_sentinels() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::start();

    keeps_both(&servers.urls(), behind_sentinels, Memory::None);
    keeps_both(&servers.urls(), behind_sentinels_with_a_replica, Memory::None);
}

#[test]
fn every_promise_is_kept_on_a_cluster() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);

    keeps_both(&cluster.urls(), on_a_cluster, Memory::OfReleases);
}

#[test]
fn lock_promises_are_kept_by_a_quorum_of_three() {
    keeps_locks_on_a_quorum_of(3);
}

#[test]
fn lock_promises_are_kept_by_a_quorum_of_five() {
    keeps_locks_on_a_quorum_of(5);
}

fn keeps_locks_on_a_quorum_of(count: usize) {
    if !available() {
        return;
    }
    let servers = independent(count);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();

    let broken = broken(lock_promises(), || shared(&urls, on_a_quorum, Memory::OfTokens));

    assert!(broken.is_empty(), "{broken:?}");
}

fn keeps_both(urls: &[String], open: Open<RedisStore>, memory: Memory) {
    let broken = broken_of_both(|| shared(urls, open, memory));

    assert!(broken.is_empty(), "{broken:?}");
}
