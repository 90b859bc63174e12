//! Servers whose clocks step.

use std::time::Duration;

use lease_core::fence::Gate;
use lease_core::{Heartbeat, LockStore};
use lease_redis::RedisQuorum;
use lease_tests::redis::{PATIENT, RedisServer};

use crate::setting::{
    LEASE, TTL, beat, eventually, has_it, held_once, held_twice, obtain, obtain_in_the_end,
    obtain_on_all, one, quorum, refused, servers, urls,
};

fn three() -> Option<[RedisServer; 3]> {
    Some([RedisServer::with_clock()?, RedisServer::with_clock()?, RedisServer::with_clock()?])
}

/// Waits until a server goes by its new clock, and with that, what has run out is gone.
async fn has_run_out(server: &RedisServer) {
    eventually("run out before its time", async || (!has_it(server)).then_some(())).await;
}

fn left(server: &RedisServer) -> Duration {
    server.lease_left("job").unwrap_or_default()
}

/// Row "the server's clock steps forward", on one server: held twice.
#[tokio::test]
async fn a_server_whose_clock_steps_forward_lets_a_key_be_held_twice_under_growing_tokens() {
    let Some(server) = RedisServer::with_clock() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;
    assert_eq!(refused(&store).await.token, grant.token);

    server.set_clock("+120");
    has_run_out(&server).await;

    held_twice(&store, &grant).await;
}

/// Row "a slot moves to a server whose clock is ahead": held twice.
#[tokio::test]
async fn a_lease_that_moves_to_a_clock_that_is_ahead_may_be_held_twice_under_growing_tokens() {
    let (Some([from]), Some(to)) = (servers::<1>(), RedisServer::with_clock()) else { return };
    let grant = obtain(&one(&from).await, "a").await;
    to.set_clock("+120");

    from.command(&format!("MIGRATE 127.0.0.1 {} {LEASE} 0 5000", to.port()));
    assert_eq!(to.command(&format!("HGET {LEASE} granted")), grant.nonce.to_string());
    has_run_out(&to).await;

    held_twice(&one(&to).await, &grant).await;
}

/// The same row, on a quorum: a minority does not matter.
#[tokio::test]
async fn a_node_whose_clock_steps_forward_is_given_back_what_is_held() {
    let Some(servers) = three() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    servers[0].set_clock("+120");
    has_run_out(&servers[0]).await;

    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    eventually("given back", async || has_it(&servers[0]).then_some(())).await;
    held_once(&store, &grant).await;
}

/// The same row, on a quorum: held twice, if a majority's clock steps.
#[tokio::test]
async fn a_majority_whose_clock_steps_forward_lets_a_key_be_held_twice_under_growing_tokens() {
    let Some(servers) = three() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    for server in &servers[..2] {
        server.set_clock("+120");
        has_run_out(server).await;
    }

    held_twice(&store, &grant).await;
}

/// A forward step shortens the quarantine, as the README says of it.
#[tokio::test]
async fn a_forward_step_shortens_the_quarantine() {
    let Some(servers) = three() else { return };
    let store = RedisQuorum::builder(urls(&servers)).with_timeout(PATIENT);
    let store = store.connect().await.unwrap();
    assert!(store.obtain(&crate::setting::claim("a")).await.is_err());

    for server in &servers {
        server.set_clock("+120");
    }

    obtain_in_the_end(&store, "a").await;
}

/// Row "the server's clock steps back", on one server: leases last longer, tokens grow.
#[tokio::test]
async fn a_server_whose_clock_steps_back_keeps_leases_for_longer_and_its_tokens_grow() {
    let Some(server) = RedisServer::with_clock() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;

    server.set_clock("-3600");
    eventually("longer", async || (left(&server) > TTL).then_some(())).await;

    held_once(&store, &grant).await;
    store.release(&grant, None).await.unwrap();
    let next = obtain_in_the_end(&store, "b").await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

/// The same row, on a quorum.
#[tokio::test]
async fn a_quorum_whose_clocks_step_back_keeps_leases_for_longer_and_its_tokens_grow() {
    let Some(servers) = three() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    for server in &servers {
        server.set_clock("-3600");
        eventually("longer", async || (left(server) > TTL).then_some(())).await;
    }

    held_once(&store, &grant).await;
    store.release(&grant, None).await.unwrap();
    let next = obtain_in_the_end(&store, "b").await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

/// The one hole in the tokens: a clock that steps back, and memory that is lost with it. A gate
/// still refuses what comes after.
#[tokio::test]
async fn tokens_go_back_only_where_memory_is_lost_and_the_clock_is_behind_and_a_gate_refuses_them()
{
    let Some(servers) = three() else { return };
    let single = one(&servers[0]).await;
    let several = quorum(&servers).await;
    let stores: [(&dyn LockStore, usize); 2] = [(&single, 1), (&several, 3)];
    for (store, needed) in stores {
        for server in &servers {
            server.set_clock("+0");
            server.command("FLUSHALL");
        }
        let behind = Duration::from_secs(1800);
        // Those that hear of it later do so before their clocks are set.
        let grant = obtain_on_all(store, &servers[..needed]).await;
        let gate = Gate::new(());
        gate.write(grant.token, |()| ()).unwrap();

        for server in &servers {
            server.set_clock("-3600");
            // The time that it counts from when there is nothing left to count on.
            eventually("an hour back", async || {
                let left = left(server);
                (left > behind || !has_it(server)).then_some(())
            })
            .await;
            server.command("FLUSHALL");
        }

        let next = obtain_in_the_end(store, "b").await;
        assert!(next.token < grant.token, "{} after {}", next.token, grant.token);
        assert!(gate.write(next.token, |()| ()).is_err(), "a gate let an old token in");
    }
}

/// Both, and a lease that outlives its ttl on the server only keeps others out: its holder stops
/// believing in it by its own clock.
#[tokio::test]
async fn a_release_frees_a_key_that_a_clock_holds_on_to() {
    let Some(server) = RedisServer::with_clock() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;
    server.set_clock("-3600");
    eventually("longer", async || (left(&server) > TTL).then_some(())).await;

    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    assert!(left(&server) <= TTL, "the next heartbeat puts it right");
    store.release(&grant, None).await.unwrap();

    assert!(!has_it(&server));
}
