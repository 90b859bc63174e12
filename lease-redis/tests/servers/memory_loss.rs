//! Servers that restart or are flushed. Rows are those of the README's table *What happens when*.

use std::time::Duration;

use lease_core::store::{Grant, Heartbeat, LockStore, Obtained};
use lease_redis::RedisQuorum;
use lease_test_servers::claims;
use lease_test_servers::redis::{RedisServer, Written};
use tokio::time::sleep;

use crate::setting::{
    LEASE, TTL, assert_still_held, assert_superseded, beat, eventually, expire, has_lease, key,
    obtain, obtain_eventually, obtain_from_all, obtain_on_all, one, quorum, servers, servers_with,
    text, urls,
};

const SYNCED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const EVERY_SECOND: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "everysec"];

/// Servers vote only after this ttl, so the ttl is short. A restart on a busy machine is shorter.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(15);

/// All nodes vote, so a node that hangs later has a connection, and receives its requests when it continues.
pub(crate) async fn quorum_with_rejoin_delay(servers: &[RedisServer]) -> RedisQuorum {
    let store = RedisQuorum::builder(urls(servers)).with_max_ttl(MAX_TTL);
    let store = store.with_timeout(Duration::from_secs(2)).connect().await.unwrap();
    eventually("the nodes vote", async || {
        let first = claims::claim(&claims::fresh_key("first"), "a", MAX_TTL).repeated();
        store.obtain(&first).await.ok()?;
        sleep(Duration::from_millis(25)).await;
        servers.iter().all(|it| it.lease_left(first.key.as_str()).is_some()).then_some(())
    })
    .await;
    store
}

/// The third node hangs during the claim, and its key is deleted afterwards.
pub(crate) async fn obtain_on_two(
    store: &RedisQuorum,
    servers: &[RedisServer],
    ttl: Duration,
) -> Grant {
    servers[2].hang();
    let grant = obtain_from_all(store, ttl).await;
    servers[2].go_on();
    eventually("the third node has received it", async || has_lease(&servers[2]).then_some(()))
        .await;
    servers[2].command("DEL lease:{job}");
    grant
}

/// Without a counter, a node accepts tokens from its time minus 0.1 s. After this wait, tokens grow even if
/// the nodes with the counter are flushed.
async fn tokens_will_grow(server: &RedisServer, grant: &Grant) {
    let time = "EVAL \"local time = redis.call('TIME') return time[1] * 1000000 + time[2]\" 0";
    eventually("a tenth of a second later", async || {
        let now: u64 = server.command(time).parse().unwrap();
        (now > grant.token.get() + 100_000).then_some(())
    })
    .await;
}

pub(crate) async fn assert_held_while_nodes_wait(store: &RedisQuorum, grant: &Grant) {
    let other = claims::claim(&key(), "other", MAX_TTL);
    eventually("refused with the reason", async || match store.obtain(&other).await {
        Ok(Obtained::Held(holder)) => (holder.lessee == grant.lessee).then_some(()),
        Ok(Obtained::Granted(..)) => panic!("the key has two holders"),
        Err(error) => text(&error).contains("may have forgotten leases").then_some(()),
    })
    .await;

    assert_eq!(beat(store, grant).await, Heartbeat::Extended);
}

/// Row "the server restarts with all its data", on one server.
#[tokio::test]
async fn restart_with_all_data_forgets_no_lease() {
    let Some([mut server]) = servers_with(&SYNCED) else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;

    server.restart();

    assert_still_held(&store, &grant).await;
    store.release(&grant, None).await.unwrap();
    assert!(obtain_eventually(&store, "b").await.token > grant.token);
}

/// Row "the server restarts with all its data", on a quorum.
#[tokio::test]
async fn restart_of_a_quorum_with_all_data_forgets_no_lease() {
    let Some(mut servers) = servers_with::<3>(&SYNCED) else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    servers.iter_mut().for_each(RedisServer::restart);

    assert_still_held(&store, &grant).await;
    store.release(&grant, None).await.unwrap();
    assert!(obtain_eventually(&store, "b").await.token > grant.token);
}

/// Row "the server restarts with all but the last second", on one server. Without the check of the run id,
/// the second grant would have the token of the first grant.
#[tokio::test]
async fn loss_of_the_last_second_causes_two_holders() {
    let Some([mut server]) = servers_with(&EVERY_SECOND) else { return };
    let store = one(&server).await;
    let earlier = obtain(&store, "a").await;
    store.release(&earlier, None).await.unwrap();
    let written = server.written();
    let grant = obtain(&store, "a").await;

    server.restart_with(&written);

    assert_superseded(&store, &grant).await;
}

/// Row "the server restarts with all but the last second", on a quorum.
#[tokio::test]
async fn node_without_its_last_second_does_not_vote() {
    let Some(mut servers) = servers_with::<3>(&EVERY_SECOND) else { return };
    let store = quorum_with_rejoin_delay(&servers).await;
    let written = servers[0].written();
    let grant = obtain_on_two(&store, &servers, MAX_TTL).await;

    servers[0].restart_with(&written);

    assert_held_while_nodes_wait(&store, &grant).await;
    restored_by_heartbeats(&store, &servers[0], &grant).await;
}

/// Row "the server restarts empty", on one server. Tokens continue from the server's time.
#[tokio::test]
async fn empty_restart_causes_two_holders() {
    let Some([mut server]) = servers() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;

    server.restart_empty();

    assert_superseded(&store, &grant).await;
}

/// Row "the server is flushed", on one server.
#[tokio::test]
async fn flush_causes_two_holders() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;

    server.command("FLUSHALL");

    assert_superseded(&store, &grant).await;
}

/// Row "the server restarts empty", on a quorum. The grant is on a bare majority, and one of these nodes
/// restarts.
#[tokio::test]
async fn node_that_restarted_empty_does_not_vote() {
    let Some(mut servers) = servers::<3>() else { return };
    let store = quorum_with_rejoin_delay(&servers).await;
    let grant = obtain_on_two(&store, &servers, MAX_TTL).await;

    servers[0].restart_empty();

    assert_held_while_nodes_wait(&store, &grant).await;
    restored_by_heartbeats(&store, &servers[0], &grant).await;
}

/// Without the rejoin delay, the same fault causes two holders. Tokens still grow.
#[tokio::test]
async fn empty_node_without_rejoin_delay_votes_too_early() {
    let Some(mut servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_two(&store, &servers, TTL).await;

    servers[0].restart_empty();

    assert_superseded(&store, &grant).await;
}

/// Row "the server restarts empty", for a majority. One node with the lease is enough to restore it.
#[tokio::test]
async fn majority_that_restarted_empty_does_not_vote() {
    let Some(mut servers) = servers::<3>() else { return };
    let store = quorum_with_rejoin_delay(&servers).await;
    let grant = obtain_from_all(&store, MAX_TTL).await;
    eventually("granted on all servers", async || servers.iter().all(has_lease).then_some(()))
        .await;

    servers[0].restart_empty();
    servers[1].restart_empty();

    assert_held_while_nodes_wait(&store, &grant).await;
    eventually("restored", async || {
        (has_lease(&servers[0]) && has_lease(&servers[1])).then_some(())
    })
    .await;
}

/// Row "the server restarts empty", for a whole quorum.
#[tokio::test]
async fn quorum_that_restarted_empty_waits_for_max_ttl() {
    let Some(mut servers) = servers::<3>() else { return };
    let store = quorum_with_rejoin_delay(&servers).await;
    let grant = obtain_from_all(&store, MAX_TTL).await;
    eventually("granted on all servers", async || servers.iter().all(has_lease).then_some(()))
        .await;

    servers.iter_mut().for_each(RedisServer::restart_empty);

    let other = claims::claim(&key(), "other", MAX_TTL);
    let early = text(&store.obtain(&other).await.unwrap_err());
    assert!(early.contains("and 2 are needed"), "{early}");
    assert!(matches!(beat(&store, &grant).await, Heartbeat::Lost(_)));
    let next = eventually("they vote again", async || match store.obtain(&other).await.ok()? {
        Obtained::Granted(grant, _) => Some(grant),
        Obtained::Held(_) => None,
    })
    .await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

/// Row "the server is flushed", on a quorum.
#[tokio::test]
async fn lease_is_restored_on_a_flushed_node() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    servers[0].command("FLUSHALL");

    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    eventually("restored", async || has_lease(&servers[0]).then_some(())).await;
    assert_still_held(&store, &grant).await;
}

/// Row "the server is flushed", on a quorum.
#[tokio::test]
async fn lease_is_restored_on_a_flushed_node_after_another_vote() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    servers[0].command("FLUSHALL");
    assert_still_held(&store, &grant).await;

    restored_by_heartbeats(&store, &servers[0], &grant).await;
    servers[1].hang();
    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    servers[1].go_on();
}

/// The node lost only this lease, for example by its expiry during a partition.
#[tokio::test]
async fn lease_is_restored_on_a_node_after_a_refused_claim() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    expire(&servers[0]);
    assert_still_held(&store, &grant).await;

    restored_by_heartbeats(&store, &servers[0], &grant).await;
    servers[1].hang();
    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    servers[1].go_on();
}

async fn restored_by_heartbeats(store: &dyn LockStore, server: &RedisServer, grant: &Grant) {
    eventually("restored", async || {
        assert_eq!(beat(store, grant).await, Heartbeat::Extended);
        let lock = server.command(&format!("GET {LEASE}"));
        let nonce = grant.nonce.get().simple().to_string();
        // The text of an expired lock also contains the nonce.
        (has_lease(server) && lock.get(2..34) == Some(&nonce)).then_some(())
    })
    .await;
}

/// Row "the server is flushed", on a quorum. A flushed node has not restarted, so it may vote too early.
#[tokio::test]
async fn flushed_node_may_vote_too_early() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum_with_rejoin_delay(&servers).await;
    let grant = obtain_on_two(&store, &servers, MAX_TTL).await;
    tokens_will_grow(&servers[0], &grant).await;

    servers[0].command("FLUSHALL");

    let other = claims::obtain(&store, &key(), "other", MAX_TTL).await;
    assert!(other.token > grant.token, "{} after {}", other.token, grant.token);
    assert!(matches!(beat(&store, &grant).await, Heartbeat::Lost(_)));
}

/// Row "the server is flushed", on a quorum.
#[tokio::test]
async fn flush_of_a_majority_causes_two_holders() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;
    tokens_will_grow(&servers[0], &grant).await;

    servers[0].command("FLUSHALL");
    servers[1].command("FLUSHALL");

    assert_superseded(&store, &grant).await;
}

#[tokio::test]
async fn tokens_grow_over_ten_power_cuts() {
    let Some(mut servers) = servers_with::<3>(&EVERY_SECOND) else { return };
    let store = quorum(&servers).await;
    let mut last = obtain_on_all(&store, &servers).await;
    store.release(&last, None).await.unwrap();
    for cut in 0..10 {
        let written: Vec<Written> = servers.iter().map(RedisServer::written).collect();
        for _ in 0..3 {
            let next = obtain_eventually(&store, "a").await;
            assert!(next.token > last.token, "cut {cut}: {} after {}", next.token, last.token);
            store.release(&next, None).await.unwrap();
            last = next;
        }
        for place in 0..=cut % 3 {
            servers[place].restart_with(&written[place]);
        }
    }
}
