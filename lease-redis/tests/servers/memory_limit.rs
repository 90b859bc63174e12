//! Servers whose memory runs out.

use lease_core::{Beat, Heartbeat, LockStore, StoreErrorKind};
use lease_redis::RedisQuorum;
use lease_tests::redis::RedisServer;

use crate::setting::{eventually, has_it, key, obtain, one, quorum, servers, text, urls};

/// Row "memory runs out": requests fail; nothing is dropped, and what frees memory is let through.
async fn requests_fail(servers: &[RedisServer], store: &dyn LockStore) {
    let grant = obtain(store, "a").await;
    let most = servers.len() / 2 + 1;

    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 1")));

    let other = lease_tests::claims::claim(&"other".parse().unwrap(), "b", crate::setting::TTL);
    let refused = store.obtain(&other).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Throttled, "{}", text(&refused));
    assert!(text(&refused).contains("OOM"), "{}", text(&refused));
    assert!(refused.is_retryable());
    let unknown = store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
    assert!(unknown.is_retryable(), "it is not lost for that: {}", text(&unknown));
    assert_eq!(store.holder(&key()).await.unwrap().unwrap().token, grant.token);

    servers[..most].iter().for_each(|server| drop(server.command("CONFIG SET maxmemory 0")));
    let beat = store.heartbeat(&grant, Beat::new(2)).await.unwrap();
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

#[tokio::test]
async fn a_server_whose_memory_runs_out_refuses_and_drops_nothing() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    requests_fail(&[server], &store).await;
}

#[tokio::test]
async fn a_quorum_whose_memory_runs_out_refuses_and_drops_nothing() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    requests_fail(&servers, &store).await;
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
