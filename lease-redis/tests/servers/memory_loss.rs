//! Servers that restart or are flushed, with all, some or nothing of what they had.

use std::time::Duration;

use lease_core::{Grant, Heartbeat, LockStore, Obtained};
use lease_redis::RedisQuorum;
use lease_tests::claims;
use lease_tests::redis::{RedisServer, Written};
use tokio::time::sleep;

use crate::setting::{
    LEASE, TTL, beat, eventually, has_it, held_once, held_twice, key, obtain, obtain_in_the_end,
    obtain_on_all, one, quorum, run_out, servers, servers_with, text, urls,
};

const SYNCED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const EVERY_SECOND: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "everysec"];

/// Longer than servers take to restart, also on a machine that stands still meanwhile, and short,
/// since they have to be up for as long first.
const MAX_TTL: Duration = Duration::from_secs(15);

/// A quorum that trusts no server that has just restarted, once all its nodes vote: one that hangs
/// from now on has a connection, and hears later what it was told.
async fn wary(servers: &[RedisServer]) -> RedisQuorum {
    let store = RedisQuorum::builder(urls(servers)).with_max_ttl(MAX_TTL);
    let store = store.with_timeout(Duration::from_secs(2)).connect().await.unwrap();
    eventually("the nodes vote", async || {
        let first = claims::claim(&claims::fresh_key("first"), "a", MAX_TTL);
        store.obtain(&first).await.ok()?;
        // A majority has answered: the others may take a moment, or have not been asked.
        sleep(Duration::from_millis(25)).await;
        servers.iter().all(|it| it.lease_left(first.key.as_str()).is_some()).then_some(())
    })
    .await;
    store
}

/// A grant that is on the first two nodes alone: the third hung, and was told to let go of it
/// when it went on.
async fn obtain_on_two(store: &RedisQuorum, servers: &[RedisServer], ttl: Duration) -> Grant {
    servers[2].hang();
    let grant = claims::obtain(store, &key(), "a", ttl).await;
    servers[2].go_on();
    eventually("the third has heard of it", async || has_it(&servers[2]).then_some(())).await;
    servers[2].command("DEL lease:{job}");
    grant
}

/// Waits for as long as the time that is proposed to nodes may be from their own: tokens grow from then
/// on, also where the nodes that counted are flushed.
async fn tokens_will_grow(server: &RedisServer, grant: &Grant) {
    let time = "EVAL \"local time = redis.call('TIME') return time[1] * 1000000 + time[2]\" 0";
    eventually("a tenth of a second later", async || {
        let now: u64 = server.command(time).parse().unwrap();
        (now > grant.token.get() + 100_000).then_some(())
    })
    .await;
}

/// Nobody else can have it while nodes keep from voting, and its holder goes on.
async fn kept_by_not_voting(store: &RedisQuorum, grant: &Grant) {
    let other = claims::claim(&key(), "other", MAX_TTL);
    eventually("the reason is said", async || match store.obtain(&other).await {
        Ok(Obtained::Held(holder)) => (holder.lessee == grant.lessee).then_some(()),
        Ok(Obtained::Granted(..)) => panic!("held twice"),
        Err(error) => text(&error).contains("may have forgotten leases").then_some(()),
    })
    .await;

    assert_eq!(beat(store, grant).await, Heartbeat::Extended);
}

/// Row "the server restarts with all it had", on one server: nothing.
#[tokio::test]
async fn a_server_that_restarts_with_all_it_had_forgets_nothing() {
    let Some([mut server]) = servers_with(&SYNCED) else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;

    server.restart();

    held_once(&store, &grant).await;
    store.release(&grant, None).await.unwrap();
    assert!(obtain_in_the_end(&store, "b").await.token > grant.token);
}

/// The same row, on a quorum: nothing, also where all restart.
#[tokio::test]
async fn a_quorum_whose_servers_restart_with_all_they_had_forgets_nothing() {
    let Some(mut servers) = servers_with::<3>(&SYNCED) else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    servers.iter_mut().for_each(RedisServer::restart);

    held_once(&store, &grant).await;
    store.release(&grant, None).await.unwrap();
    assert!(obtain_in_the_end(&store, "b").await.token > grant.token);
}

/// Row "… with all but the last second", on one server: held twice.
///
/// The counter on the disk is behind, too: without the look at the run id, the second grant has
/// the token of the first.
#[tokio::test]
async fn a_server_that_lost_its_last_second_lets_a_key_be_held_twice_under_growing_tokens() {
    let Some([mut server]) = servers_with(&EVERY_SECOND) else { return };
    let store = one(&server).await;
    let earlier = obtain(&store, "a").await;
    store.release(&earlier, None).await.unwrap();
    let written = server.written();
    let grant = obtain(&store, "a").await;

    server.restart_with(&written);

    held_twice(&store, &grant).await;
}

/// The same row, on a quorum: it keeps from voting.
#[tokio::test]
async fn a_node_that_lost_its_last_second_keeps_from_voting_and_is_given_it_back() {
    let Some(mut servers) = servers_with::<3>(&EVERY_SECOND) else { return };
    let store = wary(&servers).await;
    let written = servers[0].written();
    let grant = obtain_on_two(&store, &servers, MAX_TTL).await;

    servers[0].restart_with(&written);

    kept_by_not_voting(&store, &grant).await;
    given_back(&store, &servers[0], &grant).await;
}

/// Row "… empty, or is flushed", on one server: held twice; tokens go on from its time.
#[tokio::test]
async fn a_server_that_restarts_empty_lets_a_key_be_held_twice_under_growing_tokens() {
    let Some([mut server]) = servers() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;

    server.restart_empty();

    held_twice(&store, &grant).await;
}

/// The same row: a flush.
#[tokio::test]
async fn a_server_that_is_flushed_lets_a_key_be_held_twice_under_growing_tokens() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    let grant = obtain(&store, "a").await;

    server.command("FLUSHALL");

    held_twice(&store, &grant).await;
}

/// The same row, on a quorum, where it is worst: the grant is on no more nodes than it has to be,
/// and one of these restarts empty.
#[tokio::test]
async fn a_node_that_restarts_empty_keeps_from_voting_and_is_given_back_what_is_held() {
    let Some(mut servers) = servers::<3>() else { return };
    let store = wary(&servers).await;
    let grant = obtain_on_two(&store, &servers, MAX_TTL).await;

    servers[0].restart_empty();

    kept_by_not_voting(&store, &grant).await;
    given_back(&store, &servers[0], &grant).await;
}

/// What the quarantine is for: without it, the same is held twice. Tokens grow all the same.
#[tokio::test]
async fn without_the_quarantine_a_node_that_restarts_empty_votes_too_early() {
    let Some(mut servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_two(&store, &servers, TTL).await;

    servers[0].restart_empty();

    held_twice(&store, &grant).await;
}

/// The same row, on a quorum, for more than a minority: nobody votes, so nobody else can have it,
/// and the one node that knows is enough to give it back.
#[tokio::test]
async fn a_majority_that_restarts_empty_keeps_from_voting_and_is_given_back_what_is_held() {
    let Some(mut servers) = servers::<3>() else { return };
    let store = wary(&servers).await;
    let grant = claims::obtain(&store, &key(), "a", MAX_TTL).await;
    eventually("all have it", async || servers.iter().all(has_it).then_some(())).await;

    servers[0].restart_empty();
    servers[1].restart_empty();

    kept_by_not_voting(&store, &grant).await;
    eventually("given back", async || (has_it(&servers[0]) && has_it(&servers[1])).then_some(()))
        .await;
}

/// The same row, on a quorum: all restart empty. Whoever held it can find nobody who knows; who
/// asks has to wait, and tokens go on from the servers' time.
#[tokio::test]
async fn a_quorum_that_restarts_empty_grants_nothing_until_all_leases_have_run_out() {
    let Some(mut servers) = servers::<3>() else { return };
    let store = wary(&servers).await;
    let grant = claims::obtain(&store, &key(), "a", MAX_TTL).await;
    eventually("all have it", async || servers.iter().all(has_it).then_some(())).await;

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

/// The same row, on a quorum: a minority that is flushed is given back what is held.
#[tokio::test]
async fn a_node_that_is_flushed_is_given_back_what_is_held() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    servers[0].command("FLUSHALL");

    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    eventually("given back", async || has_it(&servers[0]).then_some(())).await;
    held_once(&store, &grant).await;
}

/// The same row, on a quorum: also where another has asked for the key before, and was refused.
#[tokio::test]
async fn a_node_that_is_flushed_and_voted_for_another_is_given_back_what_is_held() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    servers[0].command("FLUSHALL");
    held_once(&store, &grant).await;

    given_back(&store, &servers[0], &grant).await;
    servers[1].hang();
    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    servers[1].go_on();
}

/// The same where the lease alone was forgotten: it ran out while the node was cut off, say.
#[tokio::test]
async fn a_node_that_voted_for_somebody_who_was_refused_is_given_back_what_is_held() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;

    run_out(&servers[0]);
    held_once(&store, &grant).await;

    given_back(&store, &servers[0], &grant).await;
    servers[1].hang();
    assert_eq!(beat(&store, &grant).await, Heartbeat::Extended);
    servers[1].go_on();
}

/// Heartbeats until `server` has `grant` again.
async fn given_back(store: &dyn LockStore, server: &RedisServer, grant: &Grant) {
    eventually("given back", async || {
        assert_eq!(beat(store, grant).await, Heartbeat::Extended);
        let nonce = server.command(&format!("HGET {LEASE} granted"));
        (nonce == grant.nonce.to_string()).then_some(())
    })
    .await;
}

/// The same row, on a quorum: flushed, not restarted, a node may vote too early.
#[tokio::test]
async fn a_node_that_is_flushed_may_vote_too_early_under_growing_tokens() {
    let Some(servers) = servers::<3>() else { return };
    let store = wary(&servers).await;
    let grant = obtain_on_two(&store, &servers, MAX_TTL).await;
    tokens_will_grow(&servers[0], &grant).await;

    servers[0].command("FLUSHALL");

    let other = claims::obtain(&store, &key(), "other", MAX_TTL).await;
    assert!(other.token > grant.token, "{} after {}", other.token, grant.token);
    assert!(matches!(beat(&store, &grant).await, Heartbeat::Lost(_)));
}

/// The same row, on a quorum: so may a majority that is flushed.
#[tokio::test]
async fn a_majority_that_is_flushed_lets_a_key_be_held_twice_under_growing_tokens() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_all(&store, &servers).await;
    tokens_will_grow(&servers[0], &grant).await;

    servers[0].command("FLUSHALL");
    servers[1].command("FLUSHALL");

    held_twice(&store, &grant).await;
}

/// Whatever is lost: no token comes twice, however often.
#[tokio::test]
async fn tokens_grow_over_ten_power_cuts() {
    let Some(mut servers) = servers_with::<3>(&EVERY_SECOND) else { return };
    let store = quorum(&servers).await;
    let mut last = obtain_on_all(&store, &servers).await;
    store.release(&last, None).await.unwrap();
    for cut in 0..10 {
        let written: Vec<Written> = servers.iter().map(RedisServer::written).collect();
        for _ in 0..3 {
            let next = obtain_in_the_end(&store, "a").await;
            assert!(next.token > last.token, "cut {cut}: {} after {}", next.token, last.token);
            store.release(&next, None).await.unwrap();
            last = next;
        }
        for place in 0..=cut % 3 {
            servers[place].restart_with(&written[place]);
        }
    }
}
