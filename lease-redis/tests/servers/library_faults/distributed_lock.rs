//! R3, distributed-lock: renewals that ended, and servers that were forgotten.

use std::time::Duration;

use lease_core::{Beat, LockStore, LossCause, Obtained};
use lease_tests::claims::soon;
use lease_tests::redis::RedisServer;

use super::Both;
use crate::setting::{
    LEASE, TTL, claim, eventually, has_it, key, lease, locker, obtain, obtain_in_the_end, quorum,
    servers,
};

/// R3: the renewal's task panicked at its second round, and nobody was told.
#[tokio::test]
async fn heartbeats_go_on_after_some_that_failed() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let lease = lease(&locker(store, Duration::from_secs(12))).await;
        let beats = || both.servers[0].command(&format!("HGET {LEASE} beat")).parse::<u64>().ok();
        let mut state = lease.state();

        for round in 0..2 {
            both.hang();
            let at_risk = state.wait_for(|state| *state == lease_core::LeaseState::AtRisk);
            soon(at_risk).await.unwrap();
            both.go_on();
            let seen = beats().unwrap();
            eventually("heartbeats", async || (beats()? > seen + 2).then_some(())).await;
            assert!(lease.is_held(), "round {round}");
        }
    }
}

/// R3: a claim that got no majority left its keys on the servers that had granted it. Here it is
/// kept while nobody can tell what became of it, and freed as soon as a majority can.
#[tokio::test]
async fn a_claim_that_got_no_majority_leaves_nothing_behind() {
    let Some(mut servers) = servers::<5>() else { return };
    let store = quorum(&servers).await;
    let locker = locker(store.clone(), TTL);
    for server in &mut servers[..3] {
        server.kill();
    }

    locker.obtain(&key()).await.unwrap_err();
    eventually("two have granted it", async || {
        (has_it(&servers[3]) && has_it(&servers[4])).then_some(())
    })
    .await;
    servers[..3].iter_mut().for_each(RedisServer::start_again);

    eventually("freed", async || servers.iter().all(|it| !has_it(it)).then_some(())).await;
    obtain_in_the_end(&store, "b").await;
}

/// R3: servers that answered after the majority were neither renewed nor freed.
#[tokio::test]
async fn a_server_that_answers_late_is_extended_and_freed_like_the_others() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    servers[2].hang();
    let grant = obtain(&store, "a").await;
    servers[2].go_on();
    eventually("heard of", async || has_it(&servers[2]).then_some(())).await;
    let ends: u64 = servers[2].command(&format!("HGET {LEASE} ends")).parse().unwrap();
    let sooner = ends - 40_000_000;
    servers[2].command(&format!("HSET {LEASE} ends {sooner}"));

    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    eventually("extended", async || {
        (servers[2].lease_left("job")? > Duration::from_secs(20)).then_some(())
    })
    .await;
    store.release(&grant, None).await.unwrap();

    eventually("freed", async || (!has_it(&servers[2])).then_some(())).await;
    assert!(matches!(store.obtain(&claim("b")).await.unwrap(), Obtained::Granted(..)));
}

/// R3: there was no deadline. A holder that hears nothing stops believing by itself.
#[tokio::test]
async fn a_holder_that_hears_nothing_stops_believing_by_its_own_clock() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let ttl = Duration::from_secs(4);
        let lease = lease(&locker(store, ttl)).await;
        both.hang();

        // They hang on until it has stopped. That it does so at its deadline, and not later, is shown
        // where time is paused.
        let lost = soon(lease.lost()).await;

        assert_eq!(lost.cause, LossCause::Expired);
        assert_eq!(lease.remaining(), Duration::ZERO);
        both.go_on();
        drop(lease);
    }
}
