//! Keys that nobody has taken before: nodes count from a time on which they agree.

use std::collections::BTreeSet;

use lease_redis::RedisQuorum;
use lease_tests::claims::{self, fresh_key};
use lease_tests::redis::{RedisServer, until};

use crate::setting::{TTL, eventually, quorum, servers, uptime};

/// Until they may count from a time that is proposed to them.
fn until_they_have_been_up_for_a_while(servers: &[RedisServer]) {
    until("up for two seconds", || servers.iter().all(|server| uptime(server) > 1));
}

/// How many scripts a server has run.
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

/// Obtains `key`; answers how many scripts each server has run for it, and what they count to.
async fn obtain_counting(
    store: &RedisQuorum,
    servers: &[RedisServer],
    key: &str,
) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let before: Vec<u64> = servers.iter().map(scripts_run).collect();
    let grant = claims::obtain(store, &key.parse().unwrap(), "a", TTL).await;
    let counted: BTreeSet<u64> = eventually("all have it", async || {
        servers.iter().map(|server| token(server, key)).collect()
    })
    .await;
    assert!(counted.contains(&grant.token.get()), "{} of {counted:?}", grant.token);
    let run = servers.iter().zip(before).map(|(server, before)| scripts_run(server) - before);
    (run.collect(), counted)
}

/// Whether a new key takes one request to each node, which it may not where the machine stands still
/// for a moment: then what is proposed comes too late.
async fn takes_one_request(store: &RedisQuorum, servers: &[RedisServer]) -> Option<()> {
    let (run, counted) = obtain_counting(store, servers, fresh_key("new").as_str()).await;
    (run == BTreeSet::from([1]) && counted.len() == 1).then_some(())
}

#[tokio::test]
async fn a_new_key_takes_one_request_to_each_node_from_the_first_one_on() {
    let Some(servers) = servers::<3>() else { return };
    until_they_have_been_up_for_a_while(&servers);
    let knowing_the_scripts = quorum(&servers).await;
    obtain_counting(&knowing_the_scripts, &servers, "first").await;

    eventually("one request", async || takes_one_request(&quorum(&servers).await, &servers).await)
        .await;
}

/// A node whose clock was stepped goes by its own, and tells it.
#[tokio::test]
async fn a_time_that_nodes_do_not_have_any_more_is_not_counted_from() {
    let clock = RedisServer::with_clock;
    let (Some(a), Some(b), Some(c)) = (clock(), clock(), clock()) else { return };
    let servers = [a, b, c];
    let store = quorum(&servers).await;
    let (_, before) = obtain_counting(&store, &servers, "before").await;

    for server in &servers {
        server.set_clock("+120");
    }
    until_they_have_been_up_for_a_while(&servers);
    let (_, after) = obtain_counting(&store, &servers, "after").await;

    let ahead = after.first().unwrap() - before.last().unwrap();
    assert!(ahead >= 100_000_000, "{ahead} us");
    eventually("one request", async || takes_one_request(&store, &servers).await).await;
}
