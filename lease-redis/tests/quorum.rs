//! `RedisQuorum` while its servers hang, die, restart and forget.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed setup fails the test")]

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::{
    Beat, BootClock, Claim, Clock, Grant, Heartbeat, LockStore, Nonce, Obtained,
};
use lease_core::{LeaseKey, Lessee, LossCause, StoreError, StoreErrorKind};
use lease_redis::RedisQuorum;
use lease_test_servers::claims::eventually;
use lease_test_servers::redis::{RedisServer, available, independent};

const TTL: Duration = Duration::from_secs(30);

/// A test that waits for a time-out exceeds its limit.
const TIMEOUT: Duration = Duration::from_secs(8);

fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(RedisServer::url).collect()
}

async fn quorum(servers: &[RedisServer]) -> RedisQuorum {
    let builder = RedisQuorum::builder(urls(servers)).without_rejoin_delay();
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

/// Waits until every server has the grant. A repeated claim asks all nodes.
async fn granted_on_all(store: &RedisQuorum, servers: &[RedisServer]) -> Grant {
    let grant = match store.obtain(&claim("a").repeated()).await.unwrap() {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    };
    let has_it = |server: &RedisServer| server.lease_left("job").is_some();
    eventually("granted on all servers", async || servers.iter().all(has_it).then_some(())).await;
    grant
}

fn text(error: &StoreError) -> String {
    format!("{error}: {}", std::error::Error::source(error).unwrap())
}

#[tokio::test]
async fn hung_minority_causes_no_wait() {
    if !available() {
        return;
    }
    let servers = independent(5);
    // One wait for a hung node fails the test.
    let limit = Duration::from_secs(120);
    let builder = RedisQuorum::builder(urls(&servers)).without_rejoin_delay().with_timeout(limit);
    let store = builder.connect().await.unwrap();
    servers[0].hang();
    servers[3].hang();
    let clock = BootClock::new();
    let began = clock.now();

    for _ in 0..20 {
        let grant = granted(&store, "a").await;
        let beat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
        assert_eq!(beat, Heartbeat::Extended);
        assert_eq!(store.holder(&key()).await.unwrap().unwrap().token, Some(grant.token));
        store.release(&grant, None).await.unwrap();
    }

    let took = clock.now().since(began);
    assert!(took < limit, "{took:?} for 20 rounds");
}

#[tokio::test]
async fn dead_minority_causes_no_wait() {
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
async fn missing_majority_is_reported_in_time_and_recovers() {
    if !available() {
        return;
    }
    let servers = independent(5);
    let limit = Duration::from_secs(2);
    let builder = RedisQuorum::builder(urls(&servers)).without_rejoin_delay().with_timeout(limit);
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
    let message = text(&refused);
    assert!(message.contains("2 of 5 nodes took part, and 3 are needed"), "{message}");
    assert!(message.contains("did not answer within 2s"), "{message}");

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
async fn failed_heartbeat_frees_no_key() {
    if !available() {
        return;
    }
    let mut servers = independent(5);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
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
async fn forgotten_grant_is_restored_by_a_heartbeat() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
    servers[1].command("FLUSHALL");

    let beat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();

    assert_eq!(beat, Heartbeat::Extended);
    eventually("restored", async || (servers[1].lease_left("job").is_some()).then_some(())).await;
    servers[0].hang();
    let beat = store.heartbeat(&grant, Beat::new(2)).await.unwrap();
    assert_eq!(beat, Heartbeat::Extended);
}

#[tokio::test]
async fn restored_grant_does_not_count_in_its_own_round() {
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
async fn former_holder_stays_superseded_after_a_release() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    // On a busy machine, answers may come too late for such a short ttl.
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
async fn refused_claim_leaves_no_vote_behind() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
    servers[2].command("FLUSHALL");

    let refused = store.obtain(&claim("b")).await.unwrap();

    assert!(matches!(refused, Obtained::Held(holder) if holder.lessee == grant.lessee));
    eventually("withdrawn", async || (servers[2].lease_left("job").is_none()).then_some(())).await;
}

/// A late request may withdraw the vote for an earlier proposal of the claim.
#[tokio::test]
async fn heartbeat_protects_a_grant_from_all_withdrawals() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
    let (nonce, earlier) = (grant.nonce.get().simple(), grant.token.get() - 1);
    servers[2].command(&format!("SETRANGE lease:{{job}} 34 {earlier:016}"));

    store.heartbeat(&grant, Beat::new(1)).await.unwrap();

    let expected = format!("h-{nonce}{:016}", grant.token.get());
    eventually("protected from all withdrawals", async || {
        let text = servers[2].command("GET lease:{job}");
        (text.starts_with(&expected) && text[82..].starts_with("1 ")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn late_claims_on_a_hung_node_are_released() {
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

    eventually("released", async || (servers[1].lease_left("job").is_none()).then_some(())).await;
}

#[tokio::test]
async fn restarted_node_does_not_vote_for_max_ttl() {
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
    let message = eventually("connected again", async || {
        let message = text(&store.obtain(&early).await.unwrap_err());
        (message.matches("votes again in").count() == 2).then_some(message)
    })
    .await;

    assert!(
        message.contains(&format!("redis at 127.0.0.1:{} restarted", servers[0].port())),
        "{message}"
    );
    eventually("voting again", async || match store.obtain(&early).await {
        Ok(Obtained::Granted(..)) => Some(()),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn ttl_above_the_rejoin_delay_is_refused() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = RedisQuorum::connect(urls(&servers)).await.unwrap();
    let mut long = claim("a");
    long.ttl = Duration::from_secs(61);

    let refused = store.obtain(&long).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
    assert!(
        text(&refused).contains("the ttl 61s is longer than the rejoin delay 60s"),
        "{}",
        text(&refused)
    );
}

#[tokio::test]
async fn tokens_grow_over_faults_of_the_servers() {
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

    for fault in 0..6 {
        match fault {
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

        assert!(next.token > last.token, "fault {fault}: {} after {}", next.token, last.token);
        store.release(&next, None).await.unwrap();
        last = next;
    }
}

#[tokio::test]
async fn unreadable_lease_fails_alone_in_a_batch() {
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
        server.command("DEL lease:{job-4}");
        server.command("HSET lease:{job-4} foreign 1");
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
async fn watch_wakes_once_a_majority_is_free() {
    if !available() {
        return;
    }
    let servers = independent(5);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
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

/// One node hangs, and another node has forgotten the grant.
#[tokio::test]
async fn holder_is_listed_and_evicted_by_a_majority() {
    if !available() {
        return;
    }
    let servers = independent(5);
    let store = quorum(&servers).await;
    let grant = granted_on_all(&store, &servers).await;
    servers[0].command("FLUSHALL");
    servers[4].hang();

    let listed: Vec<_> = store.scan("j").map(Result::unwrap).collect().await;
    let [held] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!(held.key, key());
    assert_eq!(held.holder.token, Some(grant.token));
    assert!(store.evict(&key(), held.holder.grant.as_ref().unwrap()).await.unwrap());

    let answer = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(answer, Heartbeat::Lost(LossCause::Revoked));
    assert!(matches!(store.obtain(&claim("b")).await.unwrap(), Obtained::Held(_)));
}

#[tokio::test]
async fn scan_without_a_majority_is_an_error() {
    if !available() {
        return;
    }
    let mut servers = independent(3);
    let store = quorum(&servers).await;
    granted_on_all(&store, &servers).await;
    servers[1].kill();
    servers[2].kill();

    let listed: Vec<_> = store.scan("j").collect().await;

    assert!(matches!(&listed[..], [Err(error)] if error.is_retryable()), "{listed:?}");
}
