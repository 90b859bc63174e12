//! Servers whose memory runs out. Rows are those of the README's table *What happens when*.

use std::time::Duration;

use lease_core::StoreErrorKind;
use lease_core::store::{Beat, Heartbeat, LockStore};
use lease_redis::RedisQuorum;
use lease_test_servers::redis::RedisServer;

use crate::setting::{
    TTL, claim, eventually, has_lease, key, obtain, obtain_on_all, one, quorum, servers, text, urls,
};

/// Row "memory runs out". Requests that free memory succeed.
async fn grants_nothing_and_keeps_leases(servers: &[RedisServer], store: &dyn LockStore) {
    let grant = obtain_on_all(store, servers).await;
    let most = servers.len() / 2 + 1;

    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 1")));

    let other = lease_test_servers::claims::claim(&"other".parse().unwrap(), "b", TTL);
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
        eventually("extended on each server", async || {
            servers[..most].iter().all(lasts).then_some(())
        })
        .await;
    }
    assert_eq!(store.holder(&key()).await.unwrap().unwrap().token, Some(grant.token));

    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 0")));
    let beat = store.heartbeat(&grant, Beat::new(9)).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);

    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 1")));
    store.release(&grant, None).await.unwrap();
    // Servers that freed the key lack the memory to record it.
    eventually("freed without memory", async || {
        drop(store.release(&grant, None).await);
        (!has_lease(&servers[0])).then_some(())
    })
    .await;
    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 0")));
    assert!(obtain(store, "b").await.token > grant.token);
}

#[tokio::test]
async fn handed_over_lease_is_adopted_while_memory_is_full() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let handed = obtain(&store, "a").await;
    server.command("CONFIG SET maxmemory 1");

    let adopted = store.adopt(&handed, &claim("heir")).await;

    let adopted = adopted.unwrap_or_else(|error| panic!("{}", text(&error)));
    assert!(lease_test_servers::claims::granted(adopted).0.token > handed.token);
}

fn run_short(servers: &[RedisServer]) {
    for server in servers {
        server.command("CONFIG SET maxmemory 0");
        server.set_lease_left("job", Duration::from_secs(10));
        server.command("CONFIG SET maxmemory 1");
    }
}

#[tokio::test]
async fn full_valkey_grants_nothing_and_keeps_leases() {
    let Some(server) = RedisServer::valkey() else { return };
    let store = one(&server).await;
    grants_nothing_and_keeps_leases(&[server], &store).await;
}

#[tokio::test]
async fn full_server_grants_nothing_and_keeps_leases() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    grants_nothing_and_keeps_leases(&[server], &store).await;
}

#[tokio::test]
async fn full_quorum_grants_nothing_and_keeps_leases() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    grants_nothing_and_keeps_leases(&servers, &store).await;
}

/// Row "memory runs out", on a quorum.
#[tokio::test]
async fn quorum_with_an_evicting_node_is_refused() {
    let Some([first, second]) = servers() else { return };
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-random"];
    let servers = [first, second, RedisServer::with(&evicting)];

    let refused = RedisQuorum::connect(urls(&servers)).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
    assert!(text(&refused).contains("set it to noeviction"), "{}", text(&refused));
}
