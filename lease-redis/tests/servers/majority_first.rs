//! Claims that ask a majority of the nodes first. See docs/design/024-majority-first.md.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::{Beat, BootClock, Clock, Grant, Heartbeat, LockStore, Nonce};
use lease_core::{LeaseKey, LossCause};
use lease_redis::RedisQuorum;
use lease_test_servers::claims::{self, fresh_key};
use lease_test_servers::redis::RedisServer;
use uuid::Uuid;

use crate::setting::{
    LEASE, TTL, claim, eventually, has_lease, in_one_of_five, key, lease, lines, locker, obtain,
    quorum, quorum_at, quorum_behind_proxies, refused, servers, urls_of,
};

/// No lease expires during a test.
const LONG: Duration = Duration::from_secs(60 * 60);

/// Even one wait for a node exceeds the limit of a test.
const TIMEOUT: Duration = Duration::from_secs(2 * 60);

fn has(server: &RedisServer, key: &LeaseKey) -> bool {
    server.lease_left(key.as_str()).is_some()
}

fn holding(servers: &[RedisServer]) -> Vec<usize> {
    (0..servers.len()).filter(|place| has_lease(&servers[*place])).collect()
}

async fn obtain_on_three(store: &RedisQuorum, servers: &[RedisServer]) -> Grant {
    obtain_on_first(store, servers, TTL).await
}

/// On a busy machine, a claim may ask all nodes, because one node takes longer than the hedge delay.
async fn obtain_on_first(store: &RedisQuorum, servers: &[RedisServer], ttl: Duration) -> Grant {
    eventually("granted on a bare majority", async || {
        let grant = claims::obtain(store, &key(), "a", ttl).await;
        if holding(servers).len() == servers.len() / 2 + 1 {
            return Some(grant);
        }
        store.release(&grant, None).await.unwrap();
        eventually("released", async || holding(servers).is_empty().then_some(())).await;
        None
    })
    .await
}

#[tokio::test]
async fn free_key_is_obtained_and_released_on_a_majority() {
    let Some(servers) = servers::<5>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_three(&store, &servers).await;
    let holders = holding(&servers);

    store.release(&grant, None).await.unwrap();

    assert!(holding(&servers).is_empty());
    let again = obtain_on_three(&store, &servers).await;
    assert_eq!(holding(&servers), holders, "all claims of a key ask the same nodes first");
    assert!(again.token > grant.token);
}

#[tokio::test]
async fn each_node_is_first_for_some_keys() {
    let Some(servers) = servers::<5>() else { return };
    let store = quorum(&servers).await;
    let mut granted = [0; 5];

    for _ in 0..40 {
        let key = fresh_key("job");
        claims::obtain(&store, &key, "a", TTL).await;
        for (count, server) in granted.iter_mut().zip(&servers) {
            *count += usize::from(has(server, &key));
        }
    }

    assert!(granted.iter().all(|count| (1..40).contains(count)), "{granted:?}");
}

#[tokio::test]
async fn first_heartbeat_brings_the_lease_to_all_nodes() {
    let Some(servers) = servers::<5>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_three(&store, &servers).await;

    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);

    eventually("on all nodes", async || (holding(&servers).len() == 5).then_some(())).await;
    store.release(&grant, None).await.unwrap();
    eventually("released on all", async || holding(&servers).is_empty().then_some(())).await;
}

/// The first heartbeat has a second round, and waits for no node.
#[tokio::test]
async fn first_heartbeat_extends_the_lease_without_one_of_its_nodes() {
    let Some(mut servers) = servers::<5>() else { return };
    let lines = lines(&servers).await;
    let builder = RedisQuorum::builder(urls_of(&lines)).without_rejoin_delay();
    let store = builder.with_timeout(TIMEOUT).connect().await.unwrap();
    let clock = BootClock::new();
    for hangs in [true, false] {
        let grant = obtain_on_three(&store, &servers).await;
        let lost = holding(&servers)[0];
        if hangs {
            servers[lost].hang();
        } else {
            servers[lost].kill();
        }
        let began = clock.now();

        assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);

        let took = clock.now().since(began);
        assert!(took < TIMEOUT, "{took:?}");
        // A hung server answers no command.
        servers[lost].go_on();
        let others = (0..5).filter(|place| *place != lost).collect::<Vec<_>>();
        let extended = async || others.iter().all(|place| has_lease(&servers[*place]));
        eventually("on the other nodes", async || extended().await.then_some(())).await;
        store.release(&grant, None).await.unwrap();
        eventually("released", async || holding_of(&servers, &others).is_empty().then_some(()))
            .await;
    }
}

fn holding_of(servers: &[RedisServer], places: &[usize]) -> Vec<usize> {
    places.iter().copied().filter(|place| has_lease(&servers[*place])).collect()
}

/// Two nodes lose the lease before its first heartbeat. The last node has it, and restores it on the others.
#[tokio::test]
async fn lease_on_the_last_of_its_nodes_is_extended() {
    let Some(servers) = servers::<5>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_three(&store, &servers).await;
    for place in &holding(&servers)[..2] {
        servers[*place].command("FLUSHALL");
    }

    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    assert_eq!(refused(&store).await.token, Some(grant.token));
}

/// The claim is late on one node. So it asks the other nodes, and its release goes to all nodes.
#[tokio::test]
async fn late_claim_is_released_on_all_nodes() {
    let Some(servers) = servers::<5>() else { return };
    let (proxies, store) = quorum_behind_proxies(&servers).await;
    let grant = obtain_on_three(&store, &servers).await;
    let slow = holding(&servers)[0];
    store.release(&grant, None).await.unwrap();
    let late = proxies[slow].hold_next_with("job");

    let grant = obtain(&store, "a").await;
    let began = holding(&servers);
    store.release(&grant, None).await.unwrap();
    late.deliver().await;

    assert!(began.len() >= 3 && !began.contains(&slow), "{began:?}");
    eventually("released on all", async || holding(&servers).is_empty().then_some(())).await;
    let next = obtain(&store, "b").await;
    assert!(next.token > grant.token);
}

/// The holder releases a lease that only three nodes have, and one of them hangs.
#[tokio::test]
async fn waiter_is_woken_although_one_of_three_nodes_hangs() {
    let Some(servers) = servers::<5>() else { return };
    let (one, other) = (quorum(&servers).await, quorum(&servers).await);
    // The poll interval and the ttl are longer than the limit of the test.
    let (holder, waiter) = (locker(one, TTL * 60), locker(other, TTL * 60));
    let held = lease(&holder).await;
    let waiting = tokio::spawn(async move { waiter.wait_until_obtained(&key()).await });
    let marked = |server: &RedisServer| server.command("GET lease:{job}").starts_with("hw");
    eventually("the waiter has marked the lease", async || {
        (servers.iter().filter(|server| marked(server)).count() >= 3).then_some(())
    })
    .await;
    let hung = servers.iter().position(marked).unwrap();
    servers[hung].hang();

    held.release().await.unwrap();

    let next = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    next.expect("woken").unwrap().unwrap().release().await.unwrap();
    servers[hung].go_on();
}

#[tokio::test]
async fn lease_on_two_reachable_nodes_is_reported() {
    let Some(mut servers) = servers::<5>() else { return };
    let store = quorum(&servers).await;
    let grant = obtain_on_three(&store, &servers).await;
    let lost = holding(&servers)[0];
    servers[lost].kill();

    assert_eq!(store.holder(&key()).await.unwrap().unwrap().token, Some(grant.token));
    let listed: Vec<_> = store.scan("").collect().await;
    let listed: Vec<_> = listed.into_iter().map(|held| held.unwrap().key).collect();
    assert_eq!(listed, [key()]);
    let unknown = store.evict(&key(), &grant.nonce.into()).await.unwrap_err();
    assert!(unknown.is_retryable(), "{unknown}");
    let beat = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(beat, Heartbeat::Lost(LossCause::Revoked));
}

/// A claim leaves out a node that has stopped. Later claims find out that it runs again.
#[tokio::test]
async fn node_that_runs_again_gets_claims_again() {
    let Some(mut servers) = servers::<5>() else { return };
    let lines = lines(&servers).await;
    let store = quorum_at(urls_of(&lines)).await;
    servers[0].kill();
    for _ in 0..20 {
        claims::obtain(&store, &fresh_key("job"), "a", TTL).await;
    }

    servers[0].start_again();

    eventually("claims reach the node", async || {
        let key = fresh_key("job");
        claims::obtain(&store, &key, "a", TTL).await;
        let on_three = servers.iter().filter(|server| has(server, &key)).count() == 3;
        (on_three && has(&servers[0], &key)).then_some(())
    })
    .await;
}

/// The first nodes have larger counters, so the second round asks all nodes. The release follows it.
#[tokio::test]
async fn grant_of_a_second_round_is_released_on_all_nodes() {
    let Some(servers) = servers::<5>() else { return };
    let store = quorum(&servers).await;
    let first = obtain_on_three(&store, &servers).await;
    let hung = holding(&servers)[0];
    store.release(&first, None).await.unwrap();
    for (hangs, counter) in [(false, 8_000_000_000_000_000_u64), (true, 8_500_000_000_000_000)] {
        eventually("free", async || holding(&servers).is_empty().then_some(())).await;
        for server in &servers {
            server.command(&format!("SET {LEASE} {counter}"));
        }
        let grant = claims::obtain(&store, &key(), "a", LONG).await;
        eventually("on all nodes", async || (holding(&servers).len() == 5).then_some(())).await;
        if hangs {
            servers[hung].hang();
        }

        store.release(&grant, None).await.unwrap();

        let live: Vec<_> = (0..5).filter(|place| !hangs || *place != hung).collect();
        eventually("released", async || holding_of(&servers, &live).is_empty().then_some(())).await;
        servers[hung].go_on();
    }
}

/// A claim whose first nodes neither grant it nor show the holder asks the other nodes.
#[tokio::test]
async fn claim_of_a_held_key_is_refused_without_one_of_its_first_nodes() {
    let (Some(_), Some(_)) = (servers::<3>(), servers::<5>()) else { return };
    in_one_of_five(async || {
        for mut servers in [Vec::from(servers::<3>().unwrap()), servers::<5>().unwrap().into()] {
            let lines = lines(&servers).await;
            let store = quorum_at(urls_of(&lines)).await;
            let grant = obtain_on_first(&store, &servers, TTL).await;
            let lost = holding(&servers)[0];
            let beat = store.heartbeat(&grant, Beat::new(1)).await;
            assert_eq!(beat.unwrap(), Heartbeat::Extended);
            eventually("on all", async || (holding(&servers).len() == servers.len()).then_some(()))
                .await;
            let fresh = quorum_at(urls_of(&lines)).await;
            servers[lost].kill();

            let answer = fresh.obtain(&claim("other")).await?;

            assert_eq!(claims::held(answer).lessee, grant.lessee);
        }
        Ok(())
    })
    .await;
}

/// Before the first heartbeat, only two of five nodes show the holder.
#[tokio::test]
async fn claim_is_refused_by_two_nodes_that_are_left() {
    let Some(_) = servers::<5>() else { return };
    in_one_of_five(async || {
        let mut servers = servers::<5>().unwrap();
        let lines = lines(&servers).await;
        let store = quorum_at(urls_of(&lines)).await;
        let grant = obtain_on_three(&store, &servers).await;
        let lost = holding(&servers)[0];
        let fresh = quorum_at(urls_of(&lines)).await;
        servers[lost].kill();

        let answer = fresh.obtain(&claim("other")).await?;

        assert_eq!(claims::held(answer).lessee, grant.lessee);
        Ok(())
    })
    .await;
}

/// Before the first heartbeat, a lease is on two nodes that are left. The other claim has the votes of the other two
/// nodes, and its nonce is larger. So it keeps its votes for several proposals. When it has withdrawn them, the lease is
/// restored on these nodes.
#[tokio::test]
async fn claim_with_as_many_votes_ends_no_lease() {
    let Some(_) = servers::<5>() else { return };
    in_one_of_five(async || {
        let mut servers = servers::<5>().unwrap();
        let lines = lines(&servers).await;
        let store = quorum_at(urls_of(&lines)).await;
        let grant = obtain_on_three(&store, &servers).await;
        let lost = holding(&servers)[0];
        let other = quorum_at(urls_of(&lines)).await;
        servers[lost].kill();
        let mut rival = claim("other");
        rival.nonce = Nonce::new(Uuid::from_u128(u128::MAX));
        assert!(rival.nonce.get() > grant.nonce.get());

        let answer = other.obtain(&rival).await?;

        assert_eq!(claims::held(answer).lessee, grant.lessee);
        let beat = async || store.heartbeat(&grant, Beat::new(1)).await.ok();
        assert_eq!(eventually("answered", beat).await, Heartbeat::Extended);
        Ok(())
    })
    .await;
}

/// On one node, the heartbeat overtakes the release, which waits in the client for the answer to another claim. The
/// heartbeat does not bring the grant to nodes that get no release.
#[tokio::test]
async fn heartbeat_after_a_release_restores_nothing() {
    let Some(servers) = servers::<5>() else { return };
    let (proxies, store) = quorum_behind_proxies(&servers).await;
    let grant = obtain_on_first(&store, &servers, LONG).await;
    let first = holding(&servers);
    let last = (0..5).find(|place| !first.contains(place)).unwrap();
    let late = proxies[first[0]].hold_next_with("elsewhere");
    let other = claims::claim(&"elsewhere".parse().unwrap(), "a", LONG).repeated();
    claims::granted(store.obtain(&other).await.unwrap());
    store.release(&grant, None).await.unwrap();
    let before = proxies[last].requests_with("job");

    let deliver = async {
        let sent = async || (proxies[last].requests_with("job") > before).then_some(());
        eventually("the heartbeat is sent", sent).await;
        late.deliver().await;
    };
    let (beat, ()) = tokio::join!(store.heartbeat(&grant, Beat::new(1)), deliver);

    assert!(!matches!(beat, Ok(Heartbeat::Extended)), "{beat:?}");
    // A restoration would arrive before this query.
    store.holder(&key()).await.unwrap();
    eventually("free", async || holding(&servers).is_empty().then_some(())).await;
}
