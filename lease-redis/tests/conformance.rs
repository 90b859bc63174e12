//! Both stores keep every promise, on every kind of server that they are made for.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened, lock_promises};
use lease_core::{LockStore, StoreError};
use lease_redis::{RedisQuorum, RedisStore};
use lease_tests::claims::soon;
use lease_tests::promises::{broken, broken_of_both};
use lease_tests::redis::{
    PATIENT, RedisCluster, RedisSentinel, RedisServer, available, independent,
};
use tokio::time::sleep;

/// Opens a store under a prefix of its own.
type Open<S> = fn(&[String], String) -> Opening<S>;
type Opening<S> = std::pin::Pin<Box<dyn Future<Output = Result<S, StoreError>> + Send>>;

/// The servers are shared by all promises; each has a prefix of its own on them.
struct Shared<S: 'static> {
    urls: Vec<String>,
    open: Open<S>,
    prefix: String,
}

fn shared<S: LockStore>(urls: &[String], open: Open<S>) -> Shared<S> {
    static PREFIXES: AtomicU64 = AtomicU64::new(0);
    let prefix = format!("promise-{}:", PREFIXES.fetch_add(1, Ordering::Relaxed));
    Shared { urls: urls.to_vec(), open, prefix }
}

#[async_trait]
impl<S: LockStore> Fixture for Shared<S> {
    type Store = S;

    async fn store(&self) -> S {
        // Connecting through Sentinels has time-outs of the client's own.
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
    let builder = RedisQuorum::builder(urls).without_quarantine();
    Box::pin(builder.with_timeout(PATIENT).with_prefix(prefix).connect())
}

#[test]
fn every_promise_is_kept_on_one_server() {
    if !available() {
        return;
    }
    let server = RedisServer::start();

    keeps_both(&[server.url()], on_one_server);
}

#[test]
fn every_promise_is_kept_behind_sentinels() {
    if !available() {
        return;
    }
    let servers = RedisSentinel::start();

    keeps_both(&servers.urls(), behind_sentinels);
    keeps_both(&servers.urls(), behind_sentinels_with_a_replica);
}

#[test]
fn every_promise_is_kept_on_a_cluster_of_three_masters() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);

    keeps_both(&cluster.urls(), on_a_cluster);
}

#[test]
fn every_promise_of_a_lock_is_kept_by_a_quorum_of_three() {
    keeps_locks_on_a_quorum_of(3);
}

#[test]
fn every_promise_of_a_lock_is_kept_by_a_quorum_of_five() {
    keeps_locks_on_a_quorum_of(5);
}

fn keeps_locks_on_a_quorum_of(count: usize) {
    if !available() {
        return;
    }
    let servers = independent(count);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();

    let broken = broken(lock_promises(), || shared(&urls, on_a_quorum));

    assert!(broken.is_empty(), "{broken:?}");
}

fn keeps_both(urls: &[String], open: Open<RedisStore>) {
    let broken = broken_of_both(|| shared(urls, open));

    assert!(broken.is_empty(), "{broken:?}");
}
