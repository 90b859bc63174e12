//! What a quorum does while its servers hang, die, restart and forget.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{
    Beat, BootClock, Claim, Clock, Grant, Heartbeat, LeaseKey, Lessee, LockStore, LossCause, Nonce,
    Obtained, StoreError, StoreErrorKind,
};
use lease_redis::RedisQuorum;
use lease_tests::claims::eventually;
use lease_tests::redis::{RedisServer, available, independent};

const TTL: Duration = Duration::from_secs(30);

/// Longer than any of these tests should take, so that waiting for it shows.
const TIMEOUT: Duration = Duration::from_secs(8);

fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(RedisServer::url).collect()
}

async fn quorum(servers: &[RedisServer]) -> RedisQuorum {
    let builder = RedisQuorum::builder(urls(servers)).without_quarantine();
    builder.with_timeout(TIMEOUT).connect().await.unwrap()
}

fn key() -> LeaseKey {
    "job".parse().unwrap()
}

fn claim(lessee: &str) -> Claim {
    Claim::new(key(), Lessee::new(lessee).unwrap(), Nonce::random(), TTL)
}

async fn granted(store: &RedisQuorum, lessee: &str) -> Grant {
    match store.obtain(&claim(lessee)).await.unwrap() {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    }
}

/// A grant to `a` that every server has heard of: a quorum answers once a majority has.
async fn granted_on_all(store: &RedisQuorum, servers: &[RedisServer]) -> Grant {
    let grant = granted(store, "a").await;
    let has_it = |server: &RedisServer| server.lease_left("job").is_some();
    eventually("all have it", async || servers.iter().all(has_it).then_some(())).await;
    grant
}

fn text(error: &StoreError) -> String {
    format!("{error}: {}", std::error::Error::source(error).unwrap())
}

#[tokio::test]
async fn a_hung_minority_is_not_waited_for() {
    if !available() {
        return;
    }
    let servers = independent(5);
    // Longer than all rounds take on a busy machine: to wait once for a hung node takes as long.
    let limit = Duration::from_mins(2);
    let builder = RedisQuorum::builder(urls(&servers)).without_quarantine().with_timeout(limit);
    let store = builder.connect().await.unwrap();
    servers[0].hang();
    servers[3].hang();
    let clock = BootClock::new();
    let began = clock.now();

    for _ in 0..20 {
        let grant = granted(&store, "a").await;
        let beat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
        assert_eq!(beat, Heartbeat::Extended);
        assert_eq!(store.holder(&key()).await.unwrap().unwrap().token, grant.token);
        store.release(&grant, None).await.unwrap();
    }

    let took = clock.now().since(began);
    assert!(took < limit, "{took:?} for 20 rounds");
}

#[tokio::test]
async fn a_dead_minority_is_not_waited_for() {
    if !available() {
        return;
    }
    let mut servers = independent(5);
    let store = quorum(&servers).await;
    servers[1].kill();
    servers[2].kill();

    let grant = granted(&store, "a").await;
    let beat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();

    assert_eq!(beat, Heartbeat::Extended);
    store.release(&grant, None).await.unwrap();
}

#[tokio::test]
async fn without_a_majority_the_error_comes_in_time_and_it_recovers_by_itself() {
    if !available() {
        return;
    }
    let servers = independent(5);
    let limit = Duration::from_secs(2);
    let builder = RedisQuorum::builder(urls(&servers)).without_quarantine().with_timeout(limit);
    let store = builder.connect().await.unwrap();
    for server in &servers[..3] {
        server.hang();
    }
    let clock = BootClock::new();
    let began = clock.now();

    let refused = store.obtain(&claim("a")).await.unwrap_err();

    let took = clock.now().since(began);
    assert!(took < limit * 10, "{took:?}");
    assert_eq!(refused.kind(), StoreErrorKind::Unavailable);
    let said = text(&refused);
    assert!(said.contains("2 of 5 nodes took part, and 3 are needed"), "{said}");
    assert!(said.contains("did not answer within 2s"), "{said}");

    for server in &servers[..3] {
        server.go_on();
    }
    eventually("granted again", async || match store.obtain(&claim("b")).await {
        Ok(Obtained::Granted(..)) => Some(()),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn a_heartbeat_counts_over_all_nodes_and_takes_nothing_away() {
    if !available() {
        return;
    }
    let mut servers = independent(5);
    let store = quorum(&servers).await;
    let grant = granted(&store, "a").await;
    for server in &mut servers[..3] {
        server.kill();
    }

    let unknown = store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();

    assert!(unknown.is_retryable());
    for server in &servers[3..] {
        assert!(server.lease_left("job").is_some(), "a failed heartbeat freed the key");
    }
}

#[tokio::test]
async fn a_node_that_forgot_a_grant_is_given_it_back() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
    servers[1].command("FLUSHALL");

    let beat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();

    assert_eq!(beat, Heartbeat::Extended);
    eventually("put back", async || (servers[1].lease_left("job").is_some()).then_some(())).await;
    // From now on it counts.
    servers[0].hang();
    let beat = store.heartbeat(&grant, Beat::new(2)).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);
}

#[tokio::test]
async fn what_a_majority_forgot_is_not_counted_in_the_round_that_puts_it_back() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
    servers[0].command("FLUSHALL");
    servers[1].command("FLUSHALL");

    let unclear = store.heartbeat(&grant, Beat::new(1)).await;

    assert!(unclear.is_err_and(|error| error.is_retryable()));
}

#[tokio::test]
async fn a_former_holder_does_not_come_back_after_others_held_and_freed_the_key() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    // A busy machine may answer too late for so short a ttl.
    let former = eventually("granted", async || {
        let mut short = claim("a");
        short.ttl = Duration::from_millis(50);
        match store.obtain(&short).await {
            Ok(Obtained::Granted(grant, _)) => Some(grant),
            _ => None,
        }
    })
    .await;
    let next = eventually("granted", async || match store.obtain(&claim("b")).await {
        Ok(Obtained::Granted(grant, _)) => Some(grant),
        _ => None,
    })
    .await;
    store.release(&next, None).await.unwrap();

    let answer = store.heartbeat(&former, Beat::new(1)).await.unwrap();

    assert_eq!(answer, Heartbeat::Lost(LossCause::Superseded));
    assert_eq!(store.holder(&key()).await.unwrap(), None);
}

#[tokio::test]
async fn a_claim_that_is_refused_leaves_nothing_behind() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
    // Its holder is on a majority; the third is free for whoever asks.
    servers[2].command("FLUSHALL");

    let refused = store.obtain(&claim("b")).await.unwrap();

    assert!(matches!(refused, Obtained::Held(holder) if holder.lessee == grant.lessee));
    eventually("taken back", async || (servers[2].lease_left("job").is_none()).then_some(())).await;
}

/// It had heard of a round that was taken back, and not of the one that was granted.
#[tokio::test]
async fn what_takes_back_a_round_leaves_what_was_extended() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
    servers[2].command("HSET lease:{job} ask 0");

    store.heartbeat(&grant, Beat::new(1)).await.unwrap();

    eventually("safe from all rounds", async || {
        (servers[2].command("HGET lease:{job} ask") == "9007199254740991").then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_a_hung_node_hears_late_is_cleaned_up() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    servers[1].hang();
    for _ in 0..5 {
        let grant = granted(&store, "a").await;
        store.release(&grant, None).await.unwrap();
    }

    servers[1].go_on();

    eventually("clean", async || (servers[1].lease_left("job").is_none()).then_some(())).await;
}

#[tokio::test]
async fn a_node_that_restarted_keeps_from_voting_for_the_longest_ttl() {
    if !available() {
        return;
    }
    let mut servers = independent(3);
    let max_ttl = Duration::from_secs(1);
    let builder = RedisQuorum::builder(urls(&servers)).with_max_ttl(max_ttl);
    let store = builder.connect().await.unwrap();
    let mut short = claim("a");
    short.ttl = max_ttl;
    eventually("up for long enough", async || store.obtain(&short).await.ok()).await;
    servers[0].restart_empty();
    servers[2].restart_empty();

    let mut early = claim("b");
    early.ttl = max_ttl;
    let said = eventually("connected again", async || {
        let said = text(&store.obtain(&early).await.unwrap_err());
        (said.matches("votes again in").count() == 2).then_some(said)
    })
    .await;

    assert!(
        said.contains(&format!("redis at 127.0.0.1:{} restarted", servers[0].port())),
        "{said}"
    );
    eventually("voting again", async || match store.obtain(&early).await {
        Ok(Obtained::Granted(..)) => Some(()),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn a_ttl_longer_than_the_quarantine_is_refused() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = RedisQuorum::connect(urls(&servers)).await.unwrap();
    let mut long = claim("a");
    long.ttl = Duration::from_secs(61);

    let refused = store.obtain(&long).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
    assert!(text(&refused).contains("a ttl of 61s is longer than the 60s"), "{}", text(&refused));
}

#[tokio::test]
async fn tokens_grow_whatever_befalls_the_servers() {
    if !available() {
        return;
    }
    let mut servers = vec![
        RedisServer::with_append_only_file(),
        RedisServer::with_append_only_file(),
        RedisServer::with_append_only_file(),
    ];
    let store = quorum(&servers).await;
    let mut last = granted(&store, "a").await;
    store.release(&last, None).await.unwrap();

    for trouble in 0..6 {
        match trouble {
            0 => servers.iter().for_each(|server| drop(server.command("SCRIPT FLUSH"))),
            1 => servers.iter().for_each(|server| drop(server.command("CLIENT KILL TYPE normal"))),
            2 => servers.iter().for_each(|server| drop(server.command("FLUSHALL"))),
            3 => servers.iter_mut().for_each(RedisServer::restart),
            4 => servers.iter_mut().for_each(RedisServer::restart_empty),
            _ => servers[1].restart_empty(),
        }

        let next = eventually("granted", async || match store.obtain(&claim("a")).await {
            Ok(Obtained::Granted(grant, _)) => Some(grant),
            _ => None,
        })
        .await;

        assert!(next.token > last.token, "trouble {trouble}: {} after {}", next.token, last.token);
        store.release(&next, None).await.unwrap();
        last = next;
    }
}

#[tokio::test]
async fn one_lease_that_cannot_be_read_fails_alone() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    let mut beats = Vec::new();
    for number in 0..10 {
        let mut one = claim("a");
        one.key = LeaseKey::new(format!("job-{number}")).unwrap();
        let Obtained::Granted(grant, _) = store.obtain(&one).await.unwrap() else { panic!() };
        beats.push((grant, Beat::new(1)));
    }
    for server in &servers {
        server.command("SET lease:{job-4} foreign");
    }

    let answers: Vec<_> = store.heartbeat_all(&beats).collect().await;

    assert_eq!(answers.len(), 10);
    for (place, answer) in answers {
        match answer {
            Ok(answer) => assert_eq!(answer, Heartbeat::Extended, "heartbeat {place}"),
            Err(error) => {
                assert_eq!((place, error.kind()), (4, StoreErrorKind::Corrupt));
            }
        }
    }
}

#[tokio::test]
async fn a_watch_wakes_once_a_majority_is_free() {
    if !available() {
        return;
    }
    let servers = independent(5);
    let store = quorum(&servers).await;
    let grant = granted(&store, "a").await;
    servers[4].hang();
    let mut freed = store.watch(&key()).await.unwrap();
    for server in &servers[..2] {
        server.command("PUBLISH lease:{job}:freed x");
    }
    let early = tokio::time::timeout(Duration::from_millis(200), &mut freed).await;
    assert!(early.is_err(), "woken by a minority");

    store.release(&grant, None).await.unwrap();

    tokio::time::timeout(TIMEOUT, freed).await.unwrap();
}
