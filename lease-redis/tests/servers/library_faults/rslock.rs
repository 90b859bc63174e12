//! RSL, rslock: locks that were left behind, errors that were waited out, silence that was taken
//! for an answer.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{LeaseState, LockStore, LossCause, StoreErrorKind};
use lease_redis::{RedisQuorum, RedisStore};
use lease_tests::claims::{self, soon};
use lease_tests::proxy::{Proxy, Wire};
use lease_tests::redis::RedisServer;

use super::Both;
use crate::setting::{
    LEASE, TTL, eventually, has_it, key, lease, locker, obtain, servers, text, urls,
};

/// RSL: a grant that took too long was refused, and stayed on the servers.
#[tokio::test]
async fn a_grant_that_comes_too_late_to_be_of_use_is_taken_back() {
    let Some(servers) = servers::<3>() else { return };
    let mut proxies = Vec::new();
    for server in &servers {
        proxies.push(Proxy::start(server.address(), Wire::Redis).await.unwrap());
    }
    let urls = proxies.iter().map(|proxy| format!("redis://{}", proxy.address()));
    // Half of the ttl is as good as over, for whoever trusts clocks as little as this.
    let builder = RedisQuorum::builder(urls).with_clock_rate_error(0.49).without_quarantine();
    let store = builder.with_timeout(TTL).connect().await.unwrap();
    let late = claims::claim(&key(), "a", Duration::from_secs(4));
    let nonce = late.nonce.to_string();
    let mut held: Vec<_> = proxies.iter().map(|proxy| proxy.hold_next_with(&nonce)).collect();
    let asking = tokio::spawn(async move { store.obtain(&late).await });
    for one in &mut held {
        soon(one.arrived()).await;
    }

    // As long as the claim may take to be of use: what is waited for is time itself.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for one in held {
        soon(one.deliver()).await;
    }

    let refused = soon(asking).await.unwrap().unwrap_err();
    assert!(text(&refused).contains("too late to be of use"), "{}", text(&refused));
    // Unlike one that has run out, what is withdrawn is not remembered as granted.
    eventually("taken back", async || {
        let forgot = |server: &RedisServer| {
            !has_it(server) && server.command(&format!("HEXISTS {LEASE} granted")) == "0"
        };
        servers.iter().all(forgot).then_some(())
    })
    .await;
}

/// RSL: whoever waited did so for ever, whatever the error was.
#[tokio::test]
async fn waiting_ends_with_an_error_that_waiting_does_not_mend() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        both.servers.iter().for_each(|it| drop(it.command(&format!("SET {LEASE} foreign"))));

        let error = soon(locker(store, TTL).wait_until_obtained(&key())).await.unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{}", text(&error));
    }
}

/// RSL: a delay of zero panicked.
#[tokio::test]
async fn a_time_of_zero_is_refused_in_words() {
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

/// RSL: whether a key is free was asked of the first server that answered, and one that could not
/// be reached had said "free".
#[tokio::test]
async fn a_key_is_free_when_a_majority_says_so_and_silence_says_nothing() {
    let Some(mut both) = Both::start().await else { return };
    let store = Arc::clone(&both.several);
    let grant = obtain(&*store, "a").await;
    // The nodes of a first grant have counted differently, and hear of its token one by one.
    let agreed = |server: &RedisServer| {
        server.command(&format!("HGET {LEASE} under")) == grant.token.to_string()
    };
    eventually("two agree", async || both.servers[1..].iter().all(agreed).then_some(())).await;
    both.servers[0].command("FLUSHALL");

    let holder = store.holder(&key()).await.unwrap();
    assert_eq!(holder.unwrap().token, grant.token, "two of three know better");

    both.servers[1].kill();
    both.servers[2].kill();
    let unknown =
        eventually("the connections break", async || store.holder(&key()).await.err()).await;
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable);
    both.servers[0].kill();
    let unknown = both.single.holder(&key()).await.unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable);
}

/// RSL: the work stood still while its lock was extended.
#[tokio::test]
async fn work_goes_on_while_a_heartbeat_is_on_its_way() {
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
                // One has taken too long by now, and another is on its way.
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

/// RSL: a lock that was dropped was held until its ttl had passed.
#[tokio::test]
async fn a_dropped_lease_is_free_at_once() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let locker = locker(store, TTL);

        drop(lease(&locker).await);

        eventually("free", async || {
            both.servers.iter().all(|server| !has_it(server)).then_some(())
        })
        .await;
        locker.close().await;
    }
}
