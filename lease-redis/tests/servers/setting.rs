//! Shared setup: stores, claims, and waits with a limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::store::{Beat, Claim, Grant, Heartbeat, LockStore, Obtained};
use lease_core::{Attempt, Holder, Lease, LeaseKey, LeaseOptions, Locker, LossCause, StoreError};
use lease_redis::{RedisQuorum, RedisStore};
pub(crate) use lease_test_servers::claims::eventually;
use lease_test_servers::claims::{self, fresh_key, soon};
use lease_test_servers::proxy::{Link, Proxy, Wire};
use lease_test_servers::redis::{PATIENT, RedisServer, available};

pub(crate) const TTL: Duration = Duration::from_secs(60);

pub(crate) const LEASE: &str = "lease:{job}";

pub(crate) fn servers<const COUNT: usize>() -> Option<[RedisServer; COUNT]> {
    servers_with(&[])
}

pub(crate) fn servers_with<const COUNT: usize>(options: &[&str]) -> Option<[RedisServer; COUNT]> {
    available().then(|| std::array::from_fn(|_| RedisServer::with(options)))
}

/// Returns seconds. The result is negative if the clock of the server was set back.
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

pub(crate) async fn quorum(servers: &[RedisServer]) -> RedisQuorum {
    quorum_at(urls(servers)).await
}

pub(crate) async fn quorum_at(urls: Vec<String>) -> RedisQuorum {
    let builder = RedisQuorum::builder(urls).without_rejoin_delay();
    builder.with_timeout(PATIENT).connect().await.unwrap()
}

pub(crate) async fn quorum_behind_proxies(servers: &[RedisServer]) -> (Vec<Proxy>, RedisQuorum) {
    let mut proxies = Vec::new();
    for server in servers {
        proxies.push(Proxy::start(server.address(), Wire::Redis).await.unwrap());
    }
    let urls = proxies.iter().map(|proxy| format!("redis://{}", proxy.address()));
    let quorum = quorum_at(urls.collect()).await;
    (proxies, quorum)
}

pub(crate) async fn one(server: &RedisServer) -> RedisStore {
    one_at(server.url()).await
}

pub(crate) async fn one_at(url: String) -> RedisStore {
    RedisStore::builder(url).with_timeout(PATIENT).connect().await.unwrap()
}

pub(crate) async fn lines(servers: &[RedisServer]) -> Vec<Link> {
    let mut lines = Vec::new();
    for server in servers {
        lines.push(Link::start(server.address()).await.unwrap());
    }
    lines
}

pub(crate) fn urls_of(lines: &[Link]) -> Vec<String> {
    lines.iter().map(Link::url).collect()
}

pub(crate) async fn obtain(store: &dyn LockStore, lessee: &str) -> Grant {
    claims::obtain(store, &key(), lessee, TTL).await
}

/// A repeated claim asks all nodes of a quorum at once.
pub(crate) async fn obtain_from_all(store: &dyn LockStore, ttl: Duration) -> Grant {
    let claim = claims::claim(&key(), "a", ttl).repeated();
    claims::granted(store.obtain(&claim).await.unwrap()).0
}

/// A quorum returns a grant once a majority has it. The first claim may ask only a majority.
pub(crate) async fn obtain_on_all(store: &dyn LockStore, servers: &[RedisServer]) -> Grant {
    let claim = claim("a");
    eventually("granted on all servers", async || {
        let (grant, _) = claims::granted(store.obtain(&claim).await.ok()?);
        servers.iter().all(has_lease).then_some(grant)
    })
    .await
}

/// Retries until the store has opened connections again and leases have expired.
/// On a busy machine, a live node may take longer than the client's patience, and a request fails. To repeat the request
/// would hide faults of the first attempt, so the whole scenario begins anew.
pub(crate) async fn in_one_of_five(scenario: impl AsyncFn() -> Result<(), StoreError>) {
    for _scenario in 0..4 {
        if scenario().await.is_ok() {
            return;
        }
    }
    scenario().await.unwrap();
}

pub(crate) async fn obtain_eventually(store: &dyn LockStore, lessee: &str) -> Grant {
    obtain_for(store, lessee, TTL).await
}

pub(crate) async fn obtain_for(store: &dyn LockStore, lessee: &str, ttl: Duration) -> Grant {
    let mut claim = claims::claim(&key(), lessee, ttl);
    eventually("granted", async || match store.obtain(&claim).await {
        Ok(Obtained::Granted(grant, _)) => Some(grant),
        Ok(Obtained::Held(_)) => {
            claim = claims::claim(&key(), lessee, ttl);
            None
        }
        // After an error, repeats the same claim, because some nodes may have granted it.
        Err(_) => None,
    })
    .await
}

pub(crate) async fn refused(store: &dyn LockStore) -> Holder {
    let answer = eventually("an answer", async || store.obtain(&claim("other")).await.ok()).await;
    claims::held(answer)
}

/// Sends heartbeats with increasing numbers until a server answers a heartbeat.
pub(crate) async fn beat(store: &dyn LockStore, grant: &Grant) -> Heartbeat {
    static LAST: AtomicU64 = AtomicU64::new(1000);
    eventually("a heartbeat is answered", async || {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        store.heartbeat(grant, Beat::new(number)).await.ok()
    })
    .await
}

/// Another lessee obtains the key with a larger token, and the former holder's next heartbeat reports the
/// loss.
pub(crate) async fn assert_superseded(store: &dyn LockStore, former: &Grant) -> Grant {
    let next = obtain_eventually(store, "other").await;
    assert!(next.token > former.token, "{} after {}", next.token, former.token);
    assert_eq!(beat(store, former).await, Heartbeat::Lost(LossCause::Superseded));
    next
}

pub(crate) async fn assert_still_held(store: &dyn LockStore, grant: &Grant) {
    let holder = refused(store).await;
    assert_eq!(holder.lessee, grant.lessee);
    assert_eq!(beat(store, grant).await, Heartbeat::Extended);
}

pub(crate) async fn works(store: &dyn LockStore) {
    let key = fresh_key("job");
    let freed = store.watch(&key).await.unwrap();
    let grant = claims::obtain(store, &key, "a", TTL).await;
    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    store.release(&grant, None).await.unwrap();
    soon(freed).await;
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

pub(crate) fn has_lease(server: &RedisServer) -> bool {
    server.lease_left("job").is_some()
}

pub(crate) fn expire(server: &RedisServer) {
    server.set_lease_left("job", Duration::ZERO);
}

pub(crate) fn flush(servers: &[RedisServer]) {
    for server in servers {
        server.command("FLUSHALL");
    }
}

pub(crate) fn text(error: &StoreError) -> String {
    format!("{error}: {}", std::error::Error::source(error).unwrap())
}
