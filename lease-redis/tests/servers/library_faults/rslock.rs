//! Faults of rslock.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::SkewedClock;
use lease_core::store::{Clock, LockStore};
use lease_core::{LeaseState, LossCause, StoreErrorKind};
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::claims::{self, soon};
use lease_test_servers::proxy::{Proxy, Wire};
use lease_test_servers::redis::RedisServer;

use super::Both;
use crate::setting::{
    LEASE, TTL, eventually, has_lease, key, lease, locker, obtain_on_all, servers, text, urls,
};

/// In rslock, a grant that took too long was refused but stayed on the servers.
#[tokio::test]
async fn late_grant_is_withdrawn() {
    let Some(servers) = servers::<3>() else { return };
    let mut proxies = Vec::new();
    for server in &servers {
        proxies.push(Proxy::start(server.address(), Wire::Redis).await.unwrap());
    }
    let urls = proxies.iter().map(|proxy| format!("redis://{}", proxy.address()));
    // With this clock rate error, a client relies on a grant for only about half of its ttl.
    let builder = RedisQuorum::builder(urls).with_clock_rate_error(0.49).without_rejoin_delay();
    let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
    let builder = builder.with_timeout(TTL).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let store = builder.connect().await.unwrap();
    let late = claims::claim(&key(), "a", TTL);
    let nonce = late.nonce.get().simple().to_string();
    let mut held: Vec<_> = proxies.iter().map(|proxy| proxy.hold_next_with(&nonce)).collect();
    let asking = tokio::spawn(async move { store.obtain(&late).await });
    for one in &mut held {
        soon(one.arrived()).await;
    }

    // Only the client's clock jumps. So the grant is late, but the votes are still valid, and the servers' locks do
    // not expire before the withdrawal.
    clock.leap(TTL.mul_f64(0.52));
    for one in held {
        soon(one.deliver()).await;
    }

    let refused = soon(asking).await.unwrap().unwrap_err();
    assert!(text(&refused).contains("too late to be of use"), "{}", text(&refused));
    // The last number of a key is its bound: the node restores no grant with a smaller token. A withdrawal sets
    // the bound back to its value before the vote, which is 0 for a new key. An expired lock would keep its bound.
    eventually("withdrawn", async || {
        let forgot = |server: &RedisServer| {
            server.command(&format!("GET {LEASE}")).ends_with(" 0000000000000000")
        };
        servers.iter().all(forgot).then_some(())
    })
    .await;
}

/// In rslock, waiting never ended, not even with a permanent error.
#[tokio::test]
async fn waiting_ends_with_a_permanent_error() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        both.servers.iter().for_each(|it| drop(it.command(&format!("SET {LEASE} foreign"))));

        let error = soon(locker(store, TTL).wait_until_obtained(&key())).await.unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{}", text(&error));
    }
}

/// In rslock, a delay of zero panicked.
#[tokio::test]
async fn zero_timeout_is_refused_with_its_range() {
    let Some(both) = Both::start().await else { return };
    let single = RedisStore::builder(both.servers[0].url()).with_timeout(Duration::ZERO);
    let several = RedisQuorum::builder(urls(&both.servers)).with_timeout(Duration::ZERO);

    for refused in [single.connect().await.map(drop), several.connect().await.map(drop)]
        .map(Result::unwrap_err)
    {
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
        assert!(text(&refused).contains("time-out 0ns is out of range"), "{}", text(&refused));
    }
}

/// In rslock, an unreachable server counted as "free".
#[tokio::test]
async fn key_is_free_only_if_a_majority_reports_it_free() {
    let Some(mut both) = Both::start().await else { return };
    let store = Arc::clone(&both.several);
    let grant = obtain_on_all(&*store, &both.servers).await;
    both.servers[0].command("FLUSHALL");

    let holder = store.holder(&key()).await.unwrap();
    assert_eq!(holder.unwrap().token, Some(grant.token), "a flushed minority has decided");

    both.servers[1].kill();
    both.servers[2].kill();
    let unknown =
        eventually("the connections break", async || store.holder(&key()).await.err()).await;
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable);
    both.servers[0].kill();
    let unknown = both.single.holder(&key()).await.unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable);
}

/// In rslock, the work paused while its lock was extended.
#[tokio::test]
async fn work_continues_during_a_heartbeat() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let locker = locker(store, Duration::from_secs(6));
        let lease = lease(&locker).await;
        both.hang();
        let state = lease.state();
        let mut steps = 0_u32;

        let lost = soon(lease.run_until_lost(async {
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
                // `AtRisk` means that a heartbeat has timed out. A step in this state shows that the work
                // did not pause meanwhile.
                steps += u32::from(*state.borrow() == LeaseState::AtRisk);
            }
        }))
        .await;
        let lost: Result<(), _> = lost;

        assert_eq!(lost.unwrap_err().cause, LossCause::Expired);
        assert!(steps > 0);
        both.go_on();
    }
}

/// In rslock, a dropped lock was held until its ttl had passed.
#[tokio::test]
async fn dropped_lease_is_released_at_once() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let locker = locker(store, TTL);

        drop(lease(&locker).await);

        eventually("free", async || {
            both.servers.iter().all(|server| !has_lease(server)).then_some(())
        })
        .await;
        locker.close().await;
    }
}
