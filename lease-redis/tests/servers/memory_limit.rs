//! Servers whose memory runs out.

use lease_core::{Beat, Heartbeat, LockStore, StoreErrorKind};
use lease_redis::RedisQuorum;
use lease_tests::redis::RedisServer;

use crate::setting::{
    LEASE, TTL, claim, eventually, has_it, key, obtain, obtain_on_all, one, quorum, servers, text,
    urls,
};

/// Row "memory runs out": nothing is granted and nothing dropped; leases are kept, and what frees
/// memory is let through.
async fn leases_are_kept(servers: &[RedisServer], store: &dyn LockStore) {
    let grant = obtain_on_all(store, servers).await;
    let most = servers.len() / 2 + 1;

    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 1")));

    let other = lease_tests::claims::claim(&"other".parse().unwrap(), "b", TTL);
    let refused = store.obtain(&other).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Throttled, "{}", text(&refused));
    assert!(text(&refused).contains("raise maxmemory"), "{}", text(&refused));
    assert!(!text(&refused).contains(".:"), "{}", text(&refused));
    assert!(refused.is_retryable());
    for number in 1..4 {
        run_short(&servers[..most]);
        let beat = store.heartbeat(&grant, Beat::new(number)).await;
        let beat = beat.unwrap_or_else(|error| panic!("{}", text(&error)));
        assert_eq!(beat, Heartbeat::Extended);
        let lasts = |server: &RedisServer| server.lease_left("job") > Some(TTL / 2);
        eventually("each has heard it", async || servers[..most].iter().all(lasts).then_some(()))
            .await;
    }
    assert_eq!(store.holder(&key()).await.unwrap().unwrap().token, grant.token);

    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 0")));
    let beat = store.heartbeat(&grant, Beat::new(9)).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);

    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 1")));
    store.release(&grant, None).await.unwrap();
    // One that has not heard it is told again; one that has, has no memory to note that.
    eventually("it is freed without memory", async || {
        drop(store.release(&grant, None).await);
        (!has_it(&servers[0])).then_some(())
    })
    .await;
    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 0")));
    assert!(obtain(store, "b").await.token > grant.token);
}

/// A lease that was handed over is held, too.
#[tokio::test]
async fn lease_that_was_handed_over_is_adopted_without_memory() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let handed = obtain(&store, "a").await;
    server.command("CONFIG SET maxmemory 1");

    let adopted = store.adopt(&handed, &claim("heir")).await;

    let adopted = adopted.unwrap_or_else(|error| panic!("{}", text(&error)));
    assert!(lease_tests::claims::granted(adopted).0.token > handed.token);
}

/// As if most of its ttl had passed, on each.
fn run_short(servers: &[RedisServer]) {
    for server in servers {
        let soon = lease_core::micros_since_1970() + 10_000_000;
        // Memory enough for this one command.
        server.command("CONFIG SET maxmemory 0");
        server.command(&format!("HSET {LEASE} ends {soon}"));
        server.command("CONFIG SET maxmemory 1");
    }
}

#[tokio::test]
async fn a_valkey_whose_memory_runs_out_refuses_and_drops_nothing() {
    let Some(server) = RedisServer::valkey() else { return };
    let store = one(&server).await;
    leases_are_kept(&[server], &store).await;
}

#[tokio::test]
async fn a_server_whose_memory_runs_out_refuses_and_drops_nothing() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    leases_are_kept(&[server], &store).await;
}

#[tokio::test]
async fn a_quorum_whose_memory_runs_out_refuses_and_drops_nothing() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    leases_are_kept(&servers, &store).await;
}

/// The same row: other policies are refused, also on one node of a quorum.
#[tokio::test]
async fn a_quorum_with_a_node_that_drops_leases_is_refused() {
    let Some([first, second]) = servers() else { return };
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-random"];
    let servers = [first, second, RedisServer::with(&evicting)];

    let refused = RedisQuorum::connect(urls(&servers)).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
    assert!(text(&refused).contains("set it to noeviction"), "{}", text(&refused));
}
