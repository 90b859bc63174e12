//! Requests and replies that are lost, doubled or late; scripts and connections that are gone.

use std::time::Duration;

use lease_core::{Beat, Heartbeat, LockStore, Obtained, StoreError};
use lease_redis::{RedisQuorum, RedisStore};
use lease_tests::claims::{self, fresh_key, soon};
use lease_tests::proxy::{Fault, Proxy, Wire};
use lease_tests::redis::{RedisServer, available, independent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::yield_now;

use crate::setting::{
    LEASE, TTL, beat, claim, eventually, flush, has_it, key, obtain, obtain_in_the_end,
    obtain_on_all, one, quorum, refused, servers, text,
};

/// Of stores behind proxies. It passes for each reply that is lost.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A store, each of whose servers is behind a proxy.
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
        Self { servers, proxies, store }.knowing_the_scripts().await
    }
}

impl Proxied<RedisQuorum> {
    async fn quorum() -> Self {
        let servers = independent(3);
        let proxies = proxies(&servers).await;
        let builder = RedisQuorum::builder(urls(&proxies)).without_quarantine();
        let store = builder.with_timeout(TIMEOUT).connect().await.unwrap();
        Self { servers, proxies, store }.knowing_the_scripts().await
    }
}

impl<S: LockStore> Proxied<S> {
    /// So that the first request of a test is the one that counts, and no answer is that the
    /// script is unknown.
    async fn knowing_the_scripts(self) -> Self {
        let grant = claims::obtain(&self.store, &fresh_key("first"), "a", TTL).await;
        self.store.heartbeat(&grant, Beat::new(1)).await.unwrap();
        self.store.release(&grant, None).await.unwrap();
        eventually("released everywhere", async || {
            let has_it = |server: &RedisServer| server.lease_left(grant.key.as_str()).is_some();
            (!self.servers.iter().any(has_it)).then_some(())
        })
        .await;
        self
    }

    fn each(&self, fault: impl Fn() -> Fault, text: &str) {
        self.proxies.iter().for_each(|proxy| proxy.next_with(text, fault()));
    }

    /// What any server has counted to.
    fn largest_token(&self) -> u64 {
        let counted = |server: &RedisServer| {
            server.command(&format!("HGET {LEASE} token")).parse::<u64>().unwrap()
        };
        self.servers.iter().map(counted).max().unwrap()
    }

    fn heard(&self, text: &str) -> bool {
        self.proxies.iter().all(|proxy| proxy.requests_with(text) > 0)
    }
}

async fn in_the_end<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    eventually("an answer", async || ask().await.ok()).await
}

/// Row "a reply is lost": the request is recognised when it is sent again.
async fn is_recognised<S: LockStore>(net: Proxied<S>, lost: fn() -> Fault) {
    let claim = claim("a");
    let nonce = claim.nonce.to_string();

    net.each(lost, &nonce);
    let unknown = net.store.obtain(&claim).await.unwrap_err();
    assert!(unknown.is_retryable(), "{}", text(&unknown));
    let counted = net.largest_token();
    let (grant, _) = claims::granted(in_the_end(async || net.store.obtain(&claim).await).await);
    // The first majority may have counted to less than a third server.
    assert!(grant.token.get() <= counted, "{} and {counted}", grant.token);
    assert_eq!(net.largest_token(), counted, "counted again with the second request");

    net.each(lost, &nonce);
    let unknown = net.store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
    assert!(unknown.is_retryable(), "{}", text(&unknown));
    let again = in_the_end(async || net.store.heartbeat(&grant, Beat::new(1)).await).await;
    assert_eq!(again, Heartbeat::Overtaken, "it had arrived: neither a loss nor an extension");
    let later = in_the_end(async || net.store.heartbeat(&grant, Beat::new(2)).await).await;
    assert_eq!(later, Heartbeat::Extended);

    net.each(lost, &nonce);
    let unknown = net.store.release(&grant, None).await.unwrap_err();
    assert!(unknown.is_retryable(), "{}", text(&unknown));
    // On a quorum, a node whose connection has fallen silent may not hear of it.
    let majority = net.servers.len() / 2 + 1;
    eventually("it has arrived", async || {
        let freed = net.servers.iter().filter(|server| !has_it(server)).count();
        (freed >= majority).then_some(())
    })
    .await;
    in_the_end(async || net.store.release(&grant, None).await).await;
    let next = obtain_in_the_end(&net.store, "b").await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

#[tokio::test]
async fn a_request_whose_reply_is_lost_is_recognised_when_it_is_sent_again() {
    if !available() {
        return;
    }
    is_recognised(Proxied::one().await, || Fault::LoseReply).await;
    is_recognised(Proxied::one().await, || Fault::CutAfter).await;
}

#[tokio::test]
async fn a_request_whose_replies_are_lost_is_recognised_by_a_quorum_when_it_is_sent_again() {
    if !available() {
        return;
    }
    is_recognised(Proxied::quorum().await, || Fault::LoseReply).await;
    is_recognised(Proxied::quorum().await, || Fault::CutAfter).await;
}

/// So that what takes an earlier round back comes too late: it may be overtaken, where a script is
/// sent again in full or a connection made anew.
#[tokio::test]
async fn an_adoption_that_is_asked_again_is_no_longer_of_its_first_round() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let handed = obtain_on_all(&store, &servers).await;
    let claim = claim("b");
    let rounds = || -> Vec<u64> {
        let ask = |server: &RedisServer| server.command(&format!("HGET {LEASE} ask"));
        servers.iter().map(|server| ask(server).parse().unwrap()).collect()
    };

    let mut last = rounds();
    for _ in 0..2 {
        claims::granted(store.adopt(&handed, &claim).await.unwrap());
        eventually("a later round", async || {
            let now = rounds();
            now.iter().zip(&last).all(|(now, last)| now > last).then_some(())
        })
        .await;
        last = rounds();
    }
}

/// Row "a request is doubled, or late": nothing.
async fn doubled<S: LockStore>(net: Proxied<S>) {
    let claim = claim("a");
    let nonce = claim.nonce.to_string();

    net.each(|| Fault::Double, &nonce);
    let (grant, _) = claims::granted(net.store.obtain(&claim).await.unwrap());
    for number in 1..4 {
        net.each(|| Fault::Double, &nonce);
        let beat = net.store.heartbeat(&grant, Beat::new(number)).await.unwrap();
        assert_eq!(beat, Heartbeat::Extended);
    }
    assert_eq!(refused(&net.store).await.token, grant.token);
    net.each(|| Fault::Double, &nonce);
    net.store.release(&grant, None).await.unwrap();
    eventually("free", async || net.servers.iter().all(|server| !has_it(server)).then_some(()))
        .await;

    // Late: neither takes what its own release gave back.
    assert!(matches!(net.store.obtain(&claim).await.unwrap(), Obtained::Held(_)));
    let late = net.store.heartbeat(&grant, Beat::new(9)).await.unwrap();
    assert!(matches!(late, Heartbeat::Lost(_)), "{late:?}");
    assert!(net.servers.iter().all(|server| !has_it(server)));
    let next = obtain_in_the_end(&net.store, "b").await;
    assert!(next.token > grant.token);
    net.store.release(&grant, None).await.unwrap();
    assert_eq!(beat(&net.store, &next).await, Heartbeat::Extended, "a late release freed it");
}

#[tokio::test]
async fn requests_that_come_twice_or_late_change_nothing() {
    if !available() {
        return;
    }
    doubled(Proxied::one().await).await;
    doubled(Proxied::quorum().await).await;
}

/// The same row: a claim that comes after another's grant was released may hold the key for a
/// ttl, for nobody. Its token is larger than the other's all the same, and nobody writes under it.
async fn late<S: LockStore + Clone>(net: Proxied<S>, direct: &dyn LockStore) {
    let Proxied { servers, proxies, store } = net;
    let short = Duration::from_secs(4);
    let late = claims::claim(&key(), "late", short);
    let nonce = late.nonce.to_string();
    let mut held = Vec::new();
    for proxy in &proxies {
        held.push(proxy.hold_next_with(&nonce));
    }
    let asking = tokio::spawn(async move { drop(store.obtain(&late).await) });
    for one in &mut held {
        soon(one.arrived()).await;
    }
    // Whoever asked is gone, with all that could take it back.
    asking.abort();
    drop(asking.await);

    let other = obtain(direct, "other").await;
    direct.release(&other, None).await.unwrap();
    for one in held {
        soon(one.deliver()).await;
    }

    eventually("held for nobody", async || servers.iter().all(has_it).then_some(())).await;
    let holder = refused(direct).await;
    assert_eq!(holder.lessee.as_str(), "late");
    assert!(holder.expires_in.unwrap() <= short);
    let next = obtain_in_the_end(direct, "next").await;
    assert!(next.token > other.token, "{} after {}", next.token, other.token);
}

#[tokio::test]
async fn a_claim_that_comes_after_another_grant_was_released_holds_the_key_for_a_ttl_at_most() {
    if !available() {
        return;
    }
    let net = Proxied::one().await;
    let direct = one(&net.servers[0]).await;
    late(net, &direct).await;

    let net = Proxied::quorum().await;
    let direct = quorum(&net.servers).await;
    late(net, &direct).await;
}

/// RS: a claim that is given up may be applied later, and hold the key after its release. Here
/// what takes it back follows it on the same connection.
#[tokio::test]
async fn a_claim_that_a_quorum_hears_late_is_taken_back_by_the_locker_that_sent_it() {
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

    // Long before the ttl of the claim has passed.
    let direct = quorum(&net.servers).await;
    obtain_in_the_end(&direct, "next").await;
}

/// Row "the scripts are flushed": sent again, without an error.
async fn scripts<S: LockStore>(net: Proxied<S>) {
    let flush = || net.servers.iter().for_each(|it| drop(it.command("SCRIPT FLUSH")));

    flush();
    let grant = obtain(&net.store, "a").await;
    flush();
    assert_eq!(net.store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    flush();
    assert_eq!(net.store.holder(&key()).await.unwrap().unwrap().token, grant.token);
    flush();
    net.store.release(&grant, None).await.unwrap();

    assert!(net.heard("EVALSHA"));
    assert!(obtain(&net.store, "b").await.token > grant.token);
}

#[tokio::test]
async fn scripts_that_were_flushed_are_sent_again_without_an_error() {
    if !available() {
        return;
    }
    scripts(Proxied::one().await).await;
    scripts(Proxied::quorum().await).await;
}

/// Row "connections are killed": made again, and whoever waits looks once.
async fn connections(servers: &[RedisServer], store: impl LockStore + Clone) {
    let grant = obtain(&store, "a").await;
    let freed = store.watch(&key()).await.unwrap();

    for server in servers {
        server.command("CLIENT KILL TYPE pubsub");
        server.command("CLIENT KILL TYPE normal");
    }

    soon(freed).await;
    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    let freed = eventually("watched again", async || store.watch(&key()).await.ok()).await;
    in_the_end(async || store.release(&grant, None).await).await;
    soon(freed).await;
    assert!(obtain_in_the_end(&store, "b").await.token > grant.token);
}

#[tokio::test]
async fn connections_that_were_killed_are_made_again_and_whoever_waits_looks_once() {
    let Some(servers) = servers::<3>() else { return };
    connections(&servers[..1], one(&servers[0]).await).await;
    flush(&servers);
    connections(&servers, quorum(&servers).await).await;
}

/// A connection that the server has closed is replaced before the next request is sent.
#[tokio::test]
async fn first_call_after_a_killed_connection_is_answered() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    for number in 1..20 {
        let grant = obtain(&store, "a").await;
        killed_connections(&server).await;
        let beat = store.heartbeat(&grant, Beat::new(number)).await;
        assert_eq!(beat.unwrap_or_else(|error| panic!("{}", text(&error))), Heartbeat::Extended);
        killed_connections(&server).await;
        store.release(&grant, None).await.unwrap_or_else(|error| panic!("{}", text(&error)));
    }
}

/// Kills every connection, and lets this runtime take notice: a later answer on another connection
/// has come through it.
async fn killed_connections(server: &RedisServer) {
    server.command("CLIENT KILL TYPE normal");
    let mut other = TcpStream::connect(server.address()).await.unwrap();
    other.write_all(b"PING\r\n").await.unwrap();
    other.read_exact(&mut [0; 7]).await.unwrap();
    for _ in 0..10 {
        yield_now().await;
    }
}
