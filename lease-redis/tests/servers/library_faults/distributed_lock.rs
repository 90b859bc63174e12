//! Faults of distributed-lock.

use std::time::Duration;

use lease_core::LossCause;
use lease_core::store::{Beat, LockStore, Obtained};
use lease_test_servers::claims::soon;
use lease_test_servers::redis::RedisServer;

use super::Both;
use crate::setting::{
    TTL, claim, eventually, has_lease, key, lease, locker, obtain, obtain_eventually, quorum,
    servers,
};

/// In distributed-lock, the renewal task panicked in its second round without a report.
#[tokio::test]
async fn heartbeats_continue_after_failed_heartbeats() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let lease = lease(&locker(store, Duration::from_secs(12))).await;
        let beats = || both.servers[0].last_beat("job");
        let mut state = lease.state();

        for round in 0..2 {
            both.hang();
            let at_risk = state.wait_for(|state| *state == lease_core::LeaseState::AtRisk);
            soon(at_risk).await.unwrap();
            both.go_on();
            let seen = beats();
            eventually("heartbeats", async || (beats() > seen + 2).then_some(())).await;
            assert!(lease.is_held(), "round {round}");
        }
    }
}

/// In distributed-lock, a claim without a majority left its keys on the servers that had granted it.
#[tokio::test]
async fn claim_without_majority_leaves_no_lease_behind() {
    let Some(mut servers) = servers::<5>() else { return };
    let store = quorum(&servers).await;
    let locker = locker(store.clone(), TTL);
    for server in &mut servers[..3] {
        server.kill();
    }

    locker.obtain(&key()).await.unwrap_err();
    eventually("granted on two servers", async || {
        (has_lease(&servers[3]) && has_lease(&servers[4])).then_some(())
    })
    .await;
    servers[..3].iter_mut().for_each(RedisServer::start_again);

    eventually("freed", async || servers.iter().all(|it| !has_lease(it)).then_some(())).await;
    obtain_eventually(&store, "b").await;
}

/// In distributed-lock, locks on servers that answered after the majority were neither renewed nor released.
#[tokio::test]
async fn lease_on_a_late_server_is_extended_and_freed() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    servers[2].hang();
    let grant = obtain(&store, "a").await;
    servers[2].go_on();
    // The client sends no claim to a silent server. Then a heartbeat restores the lease on that server.
    let mut beat = Beat::GRANTED;
    eventually("received or restored", async || {
        beat = beat.next();
        store.heartbeat(&grant, beat).await.unwrap();
        has_lease(&servers[2]).then_some(())
    })
    .await;
    servers[2].set_lease_left("job", Duration::from_secs(20));

    store.heartbeat(&grant, beat.next()).await.unwrap();
    eventually("extended", async || {
        (servers[2].lease_left("job")? > Duration::from_secs(20)).then_some(())
    })
    .await;
    store.release(&grant, None).await.unwrap();

    eventually("freed", async || (!has_lease(&servers[2])).then_some(())).await;
    assert!(matches!(store.obtain(&claim("b")).await.unwrap(), Obtained::Granted(..)));
}

/// In distributed-lock, leases had no deadline.
#[tokio::test]
async fn lease_without_answers_expires_by_the_holders_clock() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let ttl = Duration::from_secs(4);
        let lease = lease(&locker(store, ttl)).await;
        both.hang();

        // Tests with paused time show that the loss happens at the deadline.
        let lost = soon(lease.lost()).await;

        assert_eq!(lost.cause, LossCause::Expired);
        assert_eq!(lease.remaining(), Duration::ZERO);
        both.go_on();
        drop(lease);
    }
}
