//! What the tests have in common: stores on some servers, claims, and waiting with a bound.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::{
    Attempt, Beat, Claim, Grant, Heartbeat, Holder, Lease, LeaseKey, LeaseOptions, LockStore,
    Locker, LossCause, Obtained, StoreError,
};
use lease_redis::{RedisQuorum, RedisStore};
use lease_tests::claims;
pub(crate) use lease_tests::claims::eventually;
use lease_tests::line::Line;
use lease_tests::redis::{PATIENT, RedisServer, available};

/// Longer than any of these tests takes.
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// The hash of [`key`]: who holds it, and what its tokens count to.
pub(crate) const LEASE: &str = "lease:{job}";

/// Independent servers; `None`, said aloud, where there is no Redis on this machine.
pub(crate) fn servers<const COUNT: usize>() -> Option<[RedisServer; COUNT]> {
    servers_with(&[])
}

/// The same, with further options as on their command lines.
pub(crate) fn servers_with<const COUNT: usize>(options: &[&str]) -> Option<[RedisServer; COUNT]> {
    available().then(|| std::array::from_fn(|_| RedisServer::with(options)))
}

/// In seconds, as a server tells it: below zero, where its clock was set back.
pub(crate) fn uptime(server: &RedisServer) -> i64 {
    let info = server.command("INFO server");
    let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
    uptime.unwrap().trim().parse().unwrap()
}

pub(crate) fn key() -> LeaseKey {
    "job".parse().unwrap()
}

pub(crate) fn claim(lessee: &str) -> Claim {
    claims::claim(&key(), lessee, TTL)
}

pub(crate) fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(RedisServer::url).collect()
}

/// A quorum of servers that may vote at once.
pub(crate) async fn quorum(servers: &[RedisServer]) -> RedisQuorum {
    quorum_at(urls(servers)).await
}

pub(crate) async fn quorum_at(urls: Vec<String>) -> RedisQuorum {
    let builder = RedisQuorum::builder(urls).without_quarantine();
    builder.with_timeout(PATIENT).connect().await.unwrap()
}

pub(crate) async fn one(server: &RedisServer) -> RedisStore {
    one_at(server.url()).await
}

pub(crate) async fn one_at(url: String) -> RedisStore {
    RedisStore::builder(url).with_timeout(PATIENT).connect().await.unwrap()
}

pub(crate) async fn lines(servers: &[RedisServer]) -> Vec<Line> {
    let mut lines = Vec::new();
    for server in servers {
        lines.push(Line::start(server.address()).await.unwrap());
    }
    lines
}

pub(crate) fn urls_of(lines: &[Line]) -> Vec<String> {
    lines.iter().map(Line::url).collect()
}

/// A grant of the key to `lessee`, which there must be at the first attempt.
pub(crate) async fn obtain(store: &dyn LockStore, lessee: &str) -> Grant {
    claims::obtain(store, &key(), lessee, TTL).await
}

/// The same, once every server has heard of it: a quorum answers as soon as a majority has, and
/// one that did not hear the claim is asked again.
pub(crate) async fn obtain_on_all(store: &dyn LockStore, servers: &[RedisServer]) -> Grant {
    let claim = claim("a");
    eventually("all have it", async || {
        let (grant, _) = claims::granted(store.obtain(&claim).await.ok()?);
        servers.iter().all(has_it).then_some(grant)
    })
    .await
}

/// A grant of the key to `lessee`, as soon as there is one: connections have to be made again,
/// leases to run out.
pub(crate) async fn obtain_in_the_end(store: &dyn LockStore, lessee: &str) -> Grant {
    obtain_for(store, lessee, TTL).await
}

/// The same, for a ttl that may be so short that it takes several claims.
pub(crate) async fn obtain_for(store: &dyn LockStore, lessee: &str, ttl: Duration) -> Grant {
    let mut claim = claims::claim(&key(), lessee, ttl);
    eventually("granted", async || match store.obtain(&claim).await {
        Ok(Obtained::Granted(grant, _)) => Some(grant),
        Ok(Obtained::Held(_)) => {
            claim = claims::claim(&key(), lessee, ttl);
            None
        }
        // Whoever is not answered asks for the same again: some may have granted it.
        Err(_) => None,
    })
    .await
}

/// Who holds the key, as somebody is told who wants it; a moment may pass until connections are
/// made again.
pub(crate) async fn refused(store: &dyn LockStore) -> Holder {
    let answer = eventually("an answer", async || store.obtain(&claim("other")).await.ok()).await;
    claims::held(answer)
}

/// Sends heartbeats until one is answered, and says what it was told. Each has a number above
/// those before it.
pub(crate) async fn beat(store: &dyn LockStore, grant: &Grant) -> Heartbeat {
    static LAST: AtomicU64 = AtomicU64::new(1000);
    eventually("a heartbeat is answered", async || {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        store.heartbeat(grant, Beat::new(number)).await.ok()
    })
    .await
}

/// Somebody else was granted the key while its holder still believed in its lease, and under a
/// larger token; the holder hears of it at its next heartbeat.
pub(crate) async fn held_twice(store: &dyn LockStore, former: &Grant) -> Grant {
    let next = obtain_in_the_end(store, "other").await;
    assert!(next.token > former.token, "{} after {}", next.token, former.token);
    assert_eq!(beat(store, former).await, Heartbeat::Lost(LossCause::Superseded));
    next
}

/// Nobody else is granted the key, and its holder goes on under the token it has.
pub(crate) async fn held_once(store: &dyn LockStore, grant: &Grant) {
    let holder = refused(store).await;
    assert_eq!(holder.lessee, grant.lessee);
    assert_eq!(beat(store, grant).await, Heartbeat::Extended);
}

pub(crate) fn locker(store: impl LockStore, ttl: Duration) -> Locker {
    Locker::new(store).with_options(LeaseOptions::new(ttl).unwrap())
}

pub(crate) async fn lease(locker: &Locker) -> Lease {
    match locker.obtain(&key()).await.unwrap() {
        Attempt::Obtained(lease) => lease,
        Attempt::Held(holder) => panic!("held by {holder:?}"),
    }
}

/// Whether `server` has a lease on the key.
pub(crate) fn has_it(server: &RedisServer) -> bool {
    server.lease_left("job").is_some()
}

/// Ends the lease on the key, as if it had run out.
pub(crate) fn run_out(server: &RedisServer) {
    server.command(&format!("HSET {LEASE} ends 1"));
}

/// Makes them forget everything.
pub(crate) fn flush(servers: &[RedisServer]) {
    for server in servers {
        server.command("FLUSHALL");
    }
}

/// All that an error says.
pub(crate) fn text(error: &StoreError) -> String {
    format!("{error}: {}", std::error::Error::source(error).unwrap())
}
