//! Lost, duplicated and late requests and replies. A comment `Row` names the row of the README's table *What
//! happens when* that a test checks.

use std::time::Duration;

use lease_core::StoreError;
use lease_core::store::{Beat, Grant, Heartbeat, LockStore};
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::claims::{self, fresh_key, soon};
use lease_test_servers::proxy::{Fault, Proxy, Wire};
use lease_test_servers::redis::{RedisServer, available, independent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::yield_now;

use crate::setting::{
    LEASE, TTL, beat, claim, eventually, flush, has_lease, key, obtain, obtain_eventually,
    obtain_on_all, one, quorum, refused, servers, text,
};

const TIMEOUT: Duration = Duration::from_secs(2);

const SHORT: Duration = Duration::from_secs(4);

struct Proxied<S> {
    servers: Vec<RedisServer>,
    proxies: Vec<Proxy>,
    store: S,
}

async fn proxies(servers: &[RedisServer]) -> Vec<Proxy> {
    let mut proxies = Vec::new();
    for server in servers {
        proxies.push(Proxy::start(server.address(), Wire::Redis).await.unwrap());
    }
    proxies
}

fn urls(proxies: &[Proxy]) -> Vec<String> {
    proxies.iter().map(|proxy| format!("redis://{}", proxy.address())).collect()
}

impl Proxied<RedisStore> {
    async fn one() -> Self {
        let servers = independent(1);
        let proxies = proxies(&servers).await;
        let store = RedisStore::builder(urls(&proxies).remove(0)).with_timeout(TIMEOUT);
        let store = store.connect().await.unwrap();
        Self { servers, proxies, store }.with_scripts().await
    }
}

impl Proxied<RedisQuorum> {
    async fn quorum() -> Self {
        let servers = independent(3);
        let proxies = proxies(&servers).await;
        let builder = RedisQuorum::builder(urls(&proxies)).without_rejoin_delay();
        let store = builder.with_timeout(TIMEOUT).connect().await.unwrap();
        Self { servers, proxies, store }.with_scripts().await
    }
}

impl<S: LockStore> Proxied<S> {
    async fn with_scripts(self) -> Self {
        // A repeated claim asks all nodes of a quorum.
        let claim = claims::claim(&fresh_key("first"), "a", TTL).repeated();
        let (grant, _) = claims::granted(self.store.obtain(&claim).await.unwrap());
        self.store.heartbeat(&grant, Beat::new(1)).await.unwrap();
        self.store.release(&grant, None).await.unwrap();
        eventually("released on all servers", async || {
            let has_lease = |server: &RedisServer| server.lease_left(grant.key.as_str()).is_some();
            (!self.servers.iter().any(has_lease)).then_some(())
        })
        .await;
        self
    }

    fn each(&self, fault: impl Fn() -> Fault, text: &str) {
        self.proxies.iter().for_each(|proxy| proxy.next_with(text, fault()));
    }

    fn received(&self, text: &str) -> bool {
        self.proxies.iter().all(|proxy| proxy.requests_with(text) > 0)
    }
}

async fn eventually_ok<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    eventually("an answer", async || ask().await.ok()).await
}

/// Row "a reply is lost".
async fn repeated_request_is_recognised<S: LockStore>(net: Proxied<S>, lost: fn() -> Fault) {
    // The first request of a claim may ask only a majority of a quorum.
    let claim = claim("a").repeated();

    net.each(lost, LEASE);
    let unknown = net.store.obtain(&claim).await.unwrap_err();
    assert!(unknown.is_retryable(), "{}", text(&unknown));
    eventually("the claim has arrived", async || net.servers.iter().all(has_lease).then_some(()))
        .await;
    let again = claim.repeated();
    let (grant, _) = claims::granted(eventually_ok(async || net.store.obtain(&again).await).await);

    net.each(lost, LEASE);
    let unknown = net.store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
    assert!(unknown.is_retryable(), "{}", text(&unknown));
    let again = eventually_ok(async || net.store.heartbeat(&grant, Beat::new(1)).await).await;
    assert_eq!(again, Heartbeat::Overtaken, "the first heartbeat had not arrived");
    let later = eventually_ok(async || net.store.heartbeat(&grant, Beat::new(2)).await).await;
    assert_eq!(later, Heartbeat::Extended);

    net.each(lost, LEASE);
    let unknown = net.store.release(&grant, None).await.unwrap_err();
    assert!(unknown.is_retryable(), "{}", text(&unknown));
    // On a quorum, the release might not reach a node whose connection is silent.
    let majority = net.servers.len() / 2 + 1;
    eventually("the release has arrived", async || {
        let freed = net.servers.iter().filter(|server| !has_lease(server)).count();
        (freed >= majority).then_some(())
    })
    .await;
    eventually_ok(async || net.store.release(&grant, None).await).await;
    let next = obtain_eventually(&net.store, "b").await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

#[tokio::test]
async fn repeated_request_is_recognised_after_a_lost_reply() {
    if !available() {
        return;
    }
    repeated_request_is_recognised(Proxied::one().await, || Fault::LoseReply).await;
    repeated_request_is_recognised(Proxied::one().await, || Fault::CutAfter).await;
}

#[tokio::test]
async fn quorum_recognises_a_repeated_request() {
    if !available() {
        return;
    }
    repeated_request_is_recognised(Proxied::quorum().await, || Fault::LoseReply).await;
    repeated_request_is_recognised(Proxied::quorum().await, || Fault::CutAfter).await;
}

/// The withdrawal of a vote may arrive after a repetition of the claim: if the server answers the withdrawal with
/// `NOSCRIPT` and the client sends it again by `EVAL`, or if the client opens a new connection. With an unchanged
/// token, the withdrawal would remove the vote for the repetition.
#[tokio::test]
async fn repeated_adoption_proposes_a_larger_token() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let handed = obtain_on_all(&store, &servers).await;
    let claim = claim("b");
    let tokens = || -> Vec<u64> {
        let lock = |server: &RedisServer| server.command(&format!("GET {LEASE}"));
        let token = |lock: String| lock[34..50].parse().unwrap();
        servers.iter().map(|server| token(lock(server))).collect()
    };

    let mut last = tokens();
    for _ in 0..2 {
        claims::granted(store.adopt(&handed, &claim).await.unwrap());
        eventually("a larger token", async || {
            let now = tokens();
            now.iter().zip(&last).all(|(now, last)| now > last).then_some(())
        })
        .await;
        last = tokens();
    }
}

/// Row "a request is duplicated, or late".
async fn duplicates_change_nothing<S: LockStore>(net: Proxied<S>) {
    let claim = claim("a");

    net.each(|| Fault::Double, LEASE);
    let (grant, _) = claims::granted(net.store.obtain(&claim).await.unwrap());
    for number in 1..4 {
        net.each(|| Fault::Double, LEASE);
        let beat = net.store.heartbeat(&grant, Beat::new(number)).await.unwrap();
        assert_eq!(beat, Heartbeat::Extended);
    }
    assert_eq!(refused(&net.store).await.token, Some(grant.token));
    net.each(|| Fault::Double, LEASE);
    net.store.release(&grant, None).await.unwrap();
    eventually("free", async || net.servers.iter().all(|server| !has_lease(server)).then_some(()))
        .await;

    let late = net.store.heartbeat(&grant, Beat::new(9)).await.unwrap();
    assert!(matches!(late, Heartbeat::Lost(_)), "{late:?}");
    let (again, _) = claims::granted(net.store.obtain(&claim.repeated()).await.unwrap());
    assert!(again.token > grant.token);
    let late = net.store.heartbeat(&grant, Beat::new(9)).await.unwrap();
    assert!(matches!(late, Heartbeat::Lost(_)), "{late:?}");
    net.store.release(&again, None).await.unwrap();
    eventually("free", async || net.servers.iter().all(|server| !has_lease(server)).then_some(()))
        .await;
    let next = obtain_eventually(&net.store, "b").await;
    assert!(next.token > grant.token);
    net.store.release(&grant, None).await.unwrap();
    assert_eq!(beat(&net.store, &next).await, Heartbeat::Extended, "a late release freed the key");
}

#[tokio::test]
async fn duplicated_or_late_requests_change_nothing() {
    if !available() {
        return;
    }
    duplicates_change_nothing(Proxied::one().await).await;
    duplicates_change_nothing(Proxied::quorum().await).await;
}

async fn claim_after_a_release<S: LockStore>(
    proxies: &[Proxy],
    store: S,
    direct: &dyn LockStore,
) -> Grant {
    let late = claims::claim(&key(), "late", SHORT);
    let mut held = Vec::new();
    for proxy in proxies {
        held.push(proxy.hold_next_with(LEASE));
    }
    let asking = tokio::spawn(async move { drop(store.obtain(&late).await) });
    for one in &mut held {
        soon(one.arrived()).await;
    }
    // The client is dropped, so it cannot withdraw the claim.
    asking.abort();
    drop(asking.await);

    let other = obtain(direct, "other").await;
    direct.release(&other, None).await.unwrap();
    for one in held {
        soon(one.deliver()).await;
    }
    other
}

/// Row "a request is duplicated, or late". The client of the late claim is gone.
#[tokio::test]
async fn late_claim_holds_a_released_key_for_a_ttl_at_most() {
    if !available() {
        return;
    }
    let Proxied { servers, proxies, store } = Proxied::one().await;
    let direct = one(&servers[0]).await;

    let other = claim_after_a_release(&proxies, store, &direct).await;

    eventually("held without a holder", async || servers.iter().all(has_lease).then_some(())).await;
    let holder = direct.holder(&key()).await.unwrap().unwrap();
    assert_eq!(holder.lessee.as_str(), "late");
    assert!(holder.expires_in.unwrap() <= SHORT);
    let next = obtain_eventually(&direct, "next").await;
    assert!(next.token > other.token, "{} after {}", next.token, other.token);
}

/// Row "a request is duplicated, or late". The nodes of the released grant refuse the late claim, because the token
/// that it proposes is smaller. The other nodes are a minority.
#[tokio::test]
async fn late_claim_on_a_quorum_holds_no_released_key() {
    if !available() {
        return;
    }
    let Proxied { servers, proxies, store } = Proxied::quorum().await;
    let direct = quorum(&servers).await;
    // The key `ahead` has a counter that is an hour ahead. `direct` must propose a larger token to obtain this
    // key, and its later proposals grow from this token. So `direct` proposes larger tokens than `store`.
    let ahead = lease_core::store::micros_since_1970() + 3_600_000_000;
    for server in &servers {
        server.command(&format!("SET lease:{{ahead}} {ahead}"));
    }
    claims::obtain(&direct, &"ahead".parse().unwrap(), "a", SHORT).await;

    let other = claim_after_a_release(&proxies, store, &direct).await;

    let held = servers.iter().filter(|server| has_lease(server)).count();
    assert!(held <= servers.len() / 2, "held without a holder on {held} nodes");
    assert!(obtain(&direct, "next").await.token > other.token);
}

/// In go-redsync, a claim could arrive at a server after its own withdrawal. The key was then held until the
/// ttl had passed, although no client had it.
#[tokio::test]
async fn locker_withdraws_its_late_claim() {
    if !available() {
        return;
    }
    let net = Proxied::quorum().await;
    let locker = crate::setting::locker(net.store.clone(), TTL);
    let hold = |proxy: &Proxy| proxy.hold_next_with("EVALSHA");
    let mut held: Vec<_> = net.proxies.iter().map(hold).collect();

    let key = key();
    let refused = locker.obtain(&key);
    let (refused, ()) = tokio::join!(refused, async {
        for one in &mut held {
            soon(one.arrived()).await;
        }
    });
    assert!(refused.is_err());
    for one in held {
        soon(one.deliver()).await;
    }

    // The key is free long before the end of the claim's ttl.
    let direct = quorum(&net.servers).await;
    obtain_eventually(&direct, "next").await;
}

/// Row "the scripts are flushed".
async fn flushed_scripts_are_sent_again<S: LockStore>(net: Proxied<S>) {
    let flush = || net.servers.iter().for_each(|it| drop(it.command("SCRIPT FLUSH")));

    flush();
    let grant = obtain(&net.store, "a").await;
    flush();
    assert_eq!(net.store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    flush();
    assert_eq!(net.store.holder(&key()).await.unwrap().unwrap().token, Some(grant.token));
    flush();
    net.store.release(&grant, None).await.unwrap();

    assert!(net.received("EVALSHA"));
    assert!(obtain(&net.store, "b").await.token > grant.token);
}

#[tokio::test]
async fn flushed_scripts_are_sent_again_without_an_error() {
    if !available() {
        return;
    }
    flushed_scripts_are_sent_again(Proxied::one().await).await;
    flushed_scripts_are_sent_again(Proxied::quorum().await).await;
}

/// Row "connections are killed".
async fn connections_are_opened_again(servers: &[RedisServer], store: impl LockStore + Clone) {
    let grant = obtain(&store, "a").await;
    let freed = store.watch(&key()).await.unwrap();

    for server in servers {
        server.command("CLIENT KILL TYPE pubsub");
        server.command("CLIENT KILL TYPE normal");
    }

    soon(freed).await;
    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    let freed = eventually("watched again", async || store.watch(&key()).await.ok()).await;
    eventually_ok(async || store.release(&grant, None).await).await;
    soon(freed).await;
    assert!(obtain_eventually(&store, "b").await.token > grant.token);
}

#[tokio::test]
async fn killed_connections_are_opened_again() {
    let Some(servers) = servers::<3>() else { return };
    connections_are_opened_again(&servers[..1], one(&servers[0]).await).await;
    flush(&servers);
    connections_are_opened_again(&servers, quorum(&servers).await).await;
}

#[tokio::test]
async fn first_call_after_a_killed_connection_is_answered() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    for number in 1..20 {
        let grant = obtain(&store, "a").await;
        kill_connections(&server).await;
        let beat = store.heartbeat(&grant, Beat::new(number)).await;
        assert_eq!(beat.unwrap_or_else(|error| panic!("{}", text(&error))), Heartbeat::Extended);
        kill_connections(&server).await;
        store.release(&grant, None).await.unwrap_or_else(|error| panic!("{}", text(&error)));
    }
}

/// Closes the store's connections, and waits until the server has closed them: the server answers a newer
/// connection only afterwards.
async fn kill_connections(server: &RedisServer) {
    server.command("CLIENT KILL TYPE normal");
    let mut other = TcpStream::connect(server.address()).await.unwrap();
    other.write_all(b"PING\r\n").await.unwrap();
    other.read_exact(&mut [0; 7]).await.unwrap();
    for _ in 0..10 {
        yield_now().await;
    }
}
