//! Faults of redisson.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::{Beat, BootClock, Clock, Grant, Heartbeat, LockStore};
use lease_core::{LeaseKey, LossCause};
use lease_redis::RedisStore;
use lease_test_servers::claims::{self, fresh_key, soon};
use lease_test_servers::proxy::{Proxy, Wire};
use lease_test_servers::redis::{PATIENT, RedisCluster, RedisServer, available};
use tokio::select;
use tokio::time::sleep;

use super::Both;
use crate::setting::{
    LEASE, TTL, beat, eventually, expire, has_lease, lease, locker, obtain, obtain_eventually,
    obtain_for, servers,
};

/// In redisson, one dead shard stopped the renewal of all locks after it.
#[tokio::test]
async fn heartbeats_of_a_shard_do_not_wait_for_a_hung_shard() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    for node in &cluster.nodes {
        node.command("CONFIG SET cluster-require-full-coverage no");
    }
    let store = RedisStore::cluster(cluster.urls()).with_timeout(PATIENT);
    let store = store.connect().await.unwrap();
    let mut beats = Vec::new();
    for number in 0..60 {
        let key = LeaseKey::new(format!("job-{number}")).unwrap();
        beats.push((claims::obtain(&store, &key, "a", TTL).await, Beat::new(1)));
    }
    let on_it = |grant: &Grant| cluster.nodes[1].lease_left(grant.key.as_str()).is_some();
    let dead: Vec<_> = beats.iter().map(|(grant, _)| on_it(grant)).collect();
    let alive = dead.iter().filter(|dead| !**dead).count();
    assert!((1..60).contains(&alive), "{alive} of 60 are on other nodes");
    cluster.nodes[1].hang();
    let clock = BootClock::new();
    let began = clock.now();

    let mut extended = 0;
    let mut answers = store.heartbeat_all(&beats);
    while let Some((place, answer)) = answers.next().await {
        if dead[place] {
            assert!(answer.unwrap_err().is_retryable());
        } else {
            assert_eq!(answer.unwrap(), Heartbeat::Extended);
            extended += 1;
            let took = clock.now().since(began);
            assert!(extended < alive || took < PATIENT, "the last came after {took:?}");
        }
    }

    assert_eq!(extended, alive);
}

/// In redisson, the token counter had the lock's ttl, so the tokens started again after this ttl.
#[tokio::test]
async fn tokens_grow_over_a_short_lease() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let short = Duration::from_millis(500);
        let grant = obtain_for(&*store, "a", short).await;
        store.heartbeat(&grant, Beat::new(1)).await.unwrap();

        eventually("the lease has expired", async || (!has_lease(&both.servers[0])).then_some(()))
            .await;
        let next = obtain_eventually(&*store, "b").await;
        assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
    }
}

/// The scripts set the counter's expiry rarely, but keep the counter at least for the retention.
#[tokio::test]
async fn token_counter_of_a_cluster_is_kept_for_the_retention_after_a_release() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let store = RedisStore::cluster(cluster.urls()).with_timeout(PATIENT);
    let store = store.connect().await.unwrap();
    let has_slot =
        |node: &&RedisServer| !node.command(&format!("TYPE {LEASE}")).starts_with("MOVED");
    let server = cluster.nodes.iter().find(has_slot).unwrap();
    let left = || server.command(&format!("PTTL {LEASE}")).parse::<i64>().unwrap();
    let asked = 7 * 24 * 60 * 60 * 1000;
    let shorten = || {
        let kept: i64 = server.command(&format!("HGET {LEASE} kept")).parse().unwrap();
        let by = left() - (asked + 30_000);
        server.command(&format!("HSET {LEASE} kept {}", kept - by * 1000));
        server.command(&format!("PEXPIRE {LEASE} {}", asked + 30_000));
    };

    let grant = obtain(&store, "a").await;
    shorten();
    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    store.release(&grant, None).await.unwrap();
    assert!(left() > asked + 50_000, "after a heartbeat: {} ms", left());

    shorten();
    let grant = obtain(&store, "a").await;
    store.release(&grant, None).await.unwrap();
    assert!(left() > asked + 50_000, "after a grant: {} ms", left());

    // A release must not create a hash without expiry after the server has lost the lease.
    let grant = obtain(&store, "a").await;
    server.command(&format!("DEL {LEASE}"));
    store.release(&grant, None).await.unwrap();
    assert_eq!(server.command(&format!("EXISTS {LEASE}")), "0", "the release has created a hash");
}

/// In redisson, the loss of a lock was not reported.
#[tokio::test]
async fn lease_forgotten_by_its_servers_is_reported_lost() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let lease = lease(&locker(store, Duration::from_secs(6))).await;

        // A late node may restore the lease on all nodes.
        let forget = async {
            loop {
                both.servers.iter().for_each(expire);
                sleep(Duration::from_millis(50)).await;
            }
        };
        let lost = select! {
            biased; // the loss decides
            lost = soon(lease.lost()) => lost,
            () = forget => unreachable!("an endless loop"),
        };
        assert_eq!(lost.cause, LossCause::Expired);
    }
}

/// In redisson, a lock was renewed after its release (issue 7272).
#[tokio::test]
async fn released_lease_has_no_more_heartbeats() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let locker = locker(store, Duration::from_secs(6));
        let other = soon(locker.wait_until_obtained(&"other".parse().unwrap())).await.unwrap();
        let beats = || both.servers[0].last_beat("other");

        lease(&locker).await.release().await.unwrap();
        let before = both.servers[0].command("INFO commandstats");
        let seen = beats();

        // The heartbeats of the other lease show that enough time has passed.
        eventually("heartbeats", async || (beats() > seen + 4).then_some(())).await;
        assert!(!has_lease(&both.servers[0]), "{before}");
        drop(other);
    }
}

/// In redisson, the renewal of a multi-lock also extended locks of other holders.
#[tokio::test]
async fn heartbeat_of_a_former_holder_extends_nothing() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let brief = obtain_for(&*store, "a", Duration::from_millis(50)).await;
        let longer = Duration::from_secs(30);
        let next = obtain_for(&*store, "b", longer).await;
        // A node that voted late may still have the former grant and extend it.
        eventually("all nodes have the next grant", async || {
            beat(&*store, &next).await;
            both.servers
                .iter()
                .all(|server| server.lease_left("job").is_none_or(|left| left > longer / 2))
                .then_some(())
        })
        .await;
        let mut former = brief;
        former.ttl = TTL;

        let answer = store.heartbeat(&former, Beat::new(1)).await.unwrap();

        assert_eq!(answer, Heartbeat::Lost(LossCause::Superseded));
        for server in &both.servers {
            let left = server.lease_left("job");
            assert!(left <= Some(longer), "{left:?}");
        }
        assert_eq!(beat(&*store, &next).await, Heartbeat::Extended);
    }
}

/// In redisson, the time to obtain a lock was not deducted from its lease.
#[tokio::test]
async fn time_to_obtain_is_deducted_from_the_lease() {
    let Some([server]) = servers() else { return };
    let way = Proxy::start(server.address(), Wire::Redis).await.unwrap();
    let url = format!("redis://{}", way.address());
    let store = RedisStore::builder(url).with_timeout(TTL).connect().await.unwrap();
    let slow = Duration::from_millis(700);
    way.set_delay(slow);
    // The locker deducts 300 ms for clock rates, and the time of the request.
    let ttl = Duration::from_secs(30);

    let lease = lease(&locker(store, ttl)).await;

    let left = lease.remaining();
    assert!(left <= ttl.mul_f64(0.99).saturating_sub(slow), "{left:?}");
}

/// In redisson, each waiter used a connection, until none was left.
#[tokio::test]
async fn hundred_watches_share_one_connection_per_server() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        for server in &both.servers {
            server.command("CLIENT KILL TYPE pubsub");
        }
        let mut watches = Vec::new();
        for _ in 0..100 {
            let key = fresh_key("job");
            watches.push(eventually("watched", async || store.watch(&key).await.ok()).await);
        }

        let listeners = both.servers[0].command("CLIENT LIST TYPE pubsub");
        assert_eq!(listeners.lines().count(), 1, "{listeners}");
    }
}
