//! Claims of new keys: the client proposes the nodes' time as the token, and the nodes accept.

use std::collections::BTreeSet;

use lease_core::store::LockStore;
use lease_redis::RedisQuorum;
use lease_test_servers::claims::{self, fresh_key};
use lease_test_servers::redis::{RedisServer, until};

use crate::setting::{TTL, eventually, quorum, quorum_behind_proxies, servers, uptime};

fn scripts_run(server: &RedisServer) -> u64 {
    let info = server.command("INFO commandstats");
    let calls = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_once(',')?.0.parse::<u64>().ok()
    };
    calls("cmdstat_evalsha:calls=").unwrap_or(0) + calls("cmdstat_eval:calls=").unwrap_or(0)
}

fn token(server: &RedisServer, key: &str) -> Option<u64> {
    let text = server.command(&format!("GET lease:{{{key}}}"));
    // In the text of a lock, the counter follows the nonce and the token.
    text.get(50..66).or_else(|| text.get(..16))?.parse().ok()
}

/// Returns how many scripts each server has run for the claim, and the servers' counters.
async fn obtain_counting(
    store: &RedisQuorum,
    servers: &[RedisServer],
    key: &str,
) -> (Vec<u64>, BTreeSet<u64>) {
    let before: Vec<u64> = servers.iter().map(scripts_run).collect();
    // A repeated claim asks all nodes.
    let claim = claims::claim(&key.parse().unwrap(), "a", TTL).repeated();
    let (grant, _) = claims::granted(store.obtain(&claim).await.unwrap());
    let counted: BTreeSet<u64> = eventually("granted on all servers", async || {
        servers.iter().map(|server| token(server, key)).collect()
    })
    .await;
    assert!(counted.contains(&grant.token.get()), "{} of {counted:?}", grant.token);
    let run = servers.iter().zip(before).map(|(server, before)| scripts_run(server) - before);
    (run.collect(), counted)
}

/// After a pause of the machine, the proposed time arrives too late, and the claim takes more requests.
async fn takes_one_request(store: &RedisQuorum, servers: &[RedisServer]) -> Option<()> {
    let (run, counted) = obtain_counting(store, servers, fresh_key("new").as_str()).await;
    (run.iter().all(|run| *run == 1) && counted.len() == 1).then_some(())
}

#[tokio::test]
async fn new_key_takes_one_request_to_each_node() {
    let Some(servers) = servers::<3>() else { return };
    let with_scripts = quorum(&servers).await;
    obtain_counting(&with_scripts, &servers, "first").await;

    eventually("one request", async || takes_one_request(&quorum(&servers).await, &servers).await)
        .await;
}

#[tokio::test]
async fn nodes_reject_a_time_from_before_a_clock_step() {
    let clock = RedisServer::with_clock;
    let (Some(a), Some(b), Some(c)) = (clock(), clock(), clock()) else { return };
    let servers = [a, b, c];
    let store = quorum(&servers).await;
    let (_, before) = obtain_counting(&store, &servers, "before").await;

    for server in &servers {
        server.set_clock("+120");
    }
    let stepped = |server: &RedisServer| uptime(server) > 60;
    until("the clocks have stepped", || servers.iter().all(stepped));
    let (_, after) = obtain_counting(&store, &servers, "after").await;

    let ahead = after.first().unwrap() - before.last().unwrap();
    assert!(ahead >= 100_000_000, "{ahead} us");
    eventually("one request", async || takes_one_request(&store, &servers).await).await;
}

/// The client's first proposal is smaller than the counters of two nodes.
#[tokio::test]
async fn larger_counters_cause_a_second_round() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    obtain_counting(&store, &servers, "first").await;
    let key = fresh_key("job");
    let large = 8_000_000_000_000_000_u64;
    for server in &servers[..2] {
        server.command(&format!("SET lease:{{{key}}} {large}"));
    }

    let (run, _) = obtain_counting(&store, &servers, key.as_str()).await;

    // The third node may receive both proposals in one batch, and the second proposal after the grant.
    assert_eq!(run[..2], [2, 2], "{run:?}");
    eventually("counted on all servers", async || {
        let counted = |server| token(server, key.as_str()) == Some(large + 1);
        servers.iter().all(counted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn larger_counter_of_a_minority_causes_no_second_round() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    obtain_counting(&store, &servers, "first").await;
    let key = fresh_key("job");
    servers[2].command(&format!("SET lease:{{{key}}} 8000000000000000"));

    let grant = claims::obtain(&store, &key, "a", TTL).await;

    assert!(grant.token.get() < 8_000_000_000_000_000);
    assert!(servers[2].lease_left(key.as_str()).is_none());
}

/// The first answers are lost. The repeated claim does not wait for a slow node.
#[tokio::test]
async fn repeated_claim_is_a_fresh_grant() {
    let Some(servers) = servers::<3>() else { return };
    let (proxies, store) = quorum_behind_proxies(&servers).await;
    let key = fresh_key("job");
    let claim = claims::claim(&key, "a", TTL);
    let (first, _) = claims::granted(store.obtain(&claim).await.unwrap());

    let late = proxies[2].hold_next_with(key.as_str());
    let again = claim.repeated();
    let (second, _) = claims::granted(store.obtain(&again).await.unwrap());

    assert!(second.token > first.token, "{} after {}", second.token, first.token);
    assert_eq!(second, again.granted(second.token));
    late.deliver().await;
    let holder = store.holder(&key).await.unwrap().unwrap();
    assert_eq!(holder.token, Some(second.token));
}
