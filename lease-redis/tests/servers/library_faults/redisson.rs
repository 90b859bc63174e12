//! RSN, redisson: renewals that come too late, too long or for whom they should not, and losses
//! that nobody is told of.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{Beat, BootClock, Clock, Grant, Heartbeat, LeaseKey, LockStore, LossCause};
use lease_redis::RedisStore;
use lease_tests::claims::{self, fresh_key, soon};
use lease_tests::proxy::{Proxy, Wire};
use lease_tests::redis::{PATIENT, RedisCluster, available};
use tokio::select;
use tokio::time::sleep;

use super::Both;
use crate::setting::{
    LEASE, TTL, eventually, has_it, lease, locker, obtain, obtain_for, obtain_in_the_end, one,
    run_out, servers,
};

/// RSN: one dead shard kept all locks after it from being renewed.
#[tokio::test]
async fn heartbeats_of_one_shard_do_not_wait_for_another_that_hangs() {
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
    assert!((1..60).contains(&alive), "{alive} of 60 are elsewhere");
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

/// RSN: what counted the tokens was given the lease's ttl, and began again.
#[tokio::test]
async fn the_counter_outlives_the_lease_whatever_its_ttl() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let short = Duration::from_millis(500);
        let grant = obtain_for(&*store, "a", short).await;
        store.heartbeat(&grant, Beat::new(1)).await.unwrap();

        let left: u64 = both.servers[0].command(&format!("PTTL {LEASE}")).parse().unwrap();
        assert!(left > 6 * 24 * 60 * 60 * 1000, "{left} ms");

        eventually("it has run out", async || (!has_it(&both.servers[0])).then_some(())).await;
        let counted: u64 = both.servers[0].command(&format!("HGET {LEASE} token")).parse().unwrap();
        assert!(counted >= grant.token.get(), "{counted} after {}", grant.token);
        let next = obtain_in_the_end(&*store, "b").await;
        assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
    }
}

/// Redis is told seldom how long to keep it, and keeps it for as long as was asked for all the same:
/// after a grant or a heartbeat for a ttl longer, so that a release need not look.
#[tokio::test]
async fn the_counter_is_kept_for_as_long_as_was_asked_for_after_a_release() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
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

    // What the server has lost meanwhile does not come back to stay for ever.
    let grant = obtain(&store, "a").await;
    server.command(&format!("DEL {LEASE}"));
    store.release(&grant, None).await.unwrap();
    assert_eq!(server.command(&format!("EXISTS {LEASE}")), "0", "there is one again");
}

/// RSN: nobody was told when a lock was lost.
#[tokio::test]
async fn a_lease_that_its_servers_lost_is_told_of() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let lease = lease(&locker(store, Duration::from_secs(6))).await;

        // Again and again: a node may hear of the claim late, and then all are given it back.
        let forget = async {
            loop {
                both.servers.iter().for_each(run_out);
                sleep(Duration::from_millis(50)).await;
            }
        };
        let lost = select! {
            biased; // the loss is what is waited for
            lost = soon(lease.lost()) => lost,
            () = forget => unreachable!("it has no end"),
        };
        assert_eq!(lost.cause, LossCause::Expired);
    }
}

/// RSN: a lock was renewed after its release (issue 7272).
#[tokio::test]
async fn a_released_lease_has_no_more_heartbeats() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let locker = locker(store, Duration::from_secs(6));
        let other = soon(locker.wait_until_obtained(&"other".parse().unwrap())).await.unwrap();
        let beats = || both.servers[0].command("HGET lease:{other} beat").parse::<u64>().ok();

        lease(&locker).await.release().await.unwrap();
        let before = both.servers[0].command("INFO commandstats");
        let seen = beats().unwrap();

        // The other lease's heartbeats tell that time enough has passed.
        eventually("heartbeats", async || (beats()? > seen + 4).then_some(())).await;
        assert!(!has_it(&both.servers[0]), "{before}");
        drop(other);
    }
}

/// RSN: every lock of a multi-lock was given a new ttl, whoever had it.
#[tokio::test]
async fn a_heartbeat_of_a_former_holder_extends_nothing() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let brief = obtain_for(&*store, "a", Duration::from_millis(50)).await;
        let longer = Duration::from_secs(30);
        let next = obtain_for(&*store, "b", longer).await;
        let mut former = brief;
        former.ttl = TTL;

        let answer = store.heartbeat(&former, Beat::new(1)).await.unwrap();

        assert_eq!(answer, Heartbeat::Lost(LossCause::Superseded));
        for server in &both.servers {
            let left = server.lease_left("job");
            assert!(left <= Some(longer), "{left:?}");
        }
        assert_eq!(store.heartbeat(&next, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    }
}

/// RSN: the time that locking took was believed in, too.
#[tokio::test]
async fn the_time_that_obtaining_took_is_not_believed_in() {
    let Some([server]) = servers() else { return };
    let way = Proxy::start(server.address(), Wire::Redis).await.unwrap();
    let url = format!("redis://{}", way.address());
    let store = RedisStore::builder(url).with_timeout(TTL).connect().await.unwrap();
    let slow = Duration::from_millis(700);
    way.set_delay(slow);
    // Of `RedisStore`'s own: 300 ms for clocks, and what it took.
    let ttl = Duration::from_secs(30);

    let lease = lease(&locker(store, ttl)).await;

    let left = lease.remaining();
    assert!(left <= ttl.mul_f64(0.99).saturating_sub(slow), "{left:?}");
}

/// RSN: each lock that was waited for took a connection, until there were no more.
#[tokio::test]
async fn a_hundred_watches_share_one_connection_per_server() {
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
