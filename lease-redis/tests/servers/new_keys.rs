//! New keys: nodes start counting from a common time.

use std::collections::BTreeSet;
use std::time::Duration;

use lease_core::store::LockStore;
use lease_redis::RedisQuorum;
use lease_test_servers::claims::{self, fresh_key};
use lease_test_servers::redis::{RedisServer, until};

use crate::setting::{TTL, eventually, quorum, quorum_behind_proxies, servers, uptime};

/// Waits until the servers accept a proposed time.
fn until_up_for_two_seconds(servers: &[RedisServer]) {
    until("up for two seconds", || servers.iter().all(|server| uptime(server) > 1));
}

/// The number of scripts that a server has run.
fn scripts_run(server: &RedisServer) -> u64 {
    let info = server.command("INFO commandstats");
    let calls = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_once(',')?.0.parse::<u64>().ok()
    };
    calls("cmdstat_evalsha:calls=").unwrap_or(0) + calls("cmdstat_eval:calls=").unwrap_or(0)
}

fn token(server: &RedisServer, key: &str) -> Option<u64> {
    server.command(&format!("HGET lease:{{{key}}} token")).parse().ok()
}

/// Obtains `key`. Returns the numbers of scripts that the servers have run for it, and their counters.
async fn obtain_counting(
    store: &RedisQuorum,
    servers: &[RedisServer],
    key: &str,
) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let before: Vec<u64> = servers.iter().map(scripts_run).collect();
    let grant = claims::obtain(store, &key.parse().unwrap(), "a", TTL).await;
    let counted: BTreeSet<u64> = eventually("granted on all servers", async || {
        servers.iter().map(|server| token(server, key)).collect()
    })
    .await;
    assert!(counted.contains(&grant.token.get()), "{} of {counted:?}", grant.token);
    let run = servers.iter().zip(before).map(|(server, before)| scripts_run(server) - before);
    (run.collect(), counted)
}

/// Returns `Some` if a new key takes one request to each node. It may take more if the machine pauses: the
/// proposed time then arrives too late.
async fn takes_one_request(store: &RedisQuorum, servers: &[RedisServer]) -> Option<()> {
    let (run, counted) = obtain_counting(store, servers, fresh_key("new").as_str()).await;
    (run == BTreeSet::from([1]) && counted.len() == 1).then_some(())
}

#[tokio::test]
async fn new_key_takes_one_request_to_each_node() {
    let Some(servers) = servers::<3>() else { return };
    until_up_for_two_seconds(&servers);
    let with_scripts = quorum(&servers).await;
    obtain_counting(&with_scripts, &servers, "first").await;

    eventually("one request", async || takes_one_request(&quorum(&servers).await, &servers).await)
        .await;
}

/// A node whose clock has stepped uses its own time and reports it.
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
    until_up_for_two_seconds(&servers);
    let (_, after) = obtain_counting(&store, &servers, "after").await;

    let ahead = after.first().unwrap() - before.last().unwrap();
    assert!(ahead >= 100_000_000, "{ahead} us");
    eventually("one request", async || takes_one_request(&store, &servers).await).await;
}

/// The third node has a larger counter, and receives the claim late. So the token of the grant is on the two
/// other nodes only.
#[tokio::test]
async fn repeated_claim_gets_its_token_from_slow_nodes() {
    let Some(servers) = servers::<3>() else { return };
    let (proxies, store) = quorum_behind_proxies(&servers).await;
    let key = fresh_key("job");
    let claim = claims::claim(&key, "a", TTL);
    servers[2].command(&format!("HSET lease:{{{key}}} token 8000000000000000"));
    let mut late = proxies[2].hold_next_with(key.as_str());
    let (first, ()) = tokio::join!(store.obtain(&claim), late.arrived());
    late.deliver().await;

    // Longer than a node may take until it counts as silent.
    proxies[1].set_delay(Duration::from_millis(200));
    let second = store.obtain(&claim).await;

    assert_ne!(token(&servers[2], key.as_str()), token(&servers[0], key.as_str()));
    let (first, _) = claims::granted(first.unwrap());
    assert_eq!(claims::granted(second.unwrap()).0, claim.granted_before(first.token));
}
