//! Clients that are paused, suspended, killed, or whose clocks step.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{LockStore, LossCause, SkewedClock};
use lease_tests::redis::RedisServer;
use lease_tests::tools::libfaketime;

use crate::holder::{Holder, SHORT};
use crate::setting::{
    LEASE, TTL, eventually, flush, key, lease, locker, obtain_in_the_end, one, quorum, refused,
    servers, urls,
};

async fn its_lease_runs_out_and_it_is_told(servers: &[RedisServer], store: &dyn LockStore) {
    let mut holder = Holder::start(&urls(servers), &[]).await;
    let former = refused(store).await;

    holder.pause().await;
    let next = obtain_in_the_end(store, "other").await;

    assert!(next.token > former.token, "{} after {}", next.token, former.token);
    assert!(holder.is_silent().await);
    holder.go_on().await;
    let told = holder.says("lost").await;
    assert!(told.contains(&former.token.to_string()), "{told}");
    // What it did when it went on has not hurt whoever came next.
    assert_eq!(refused(store).await.token, next.token);
}

/// Row "the process pauses", on one server.
#[tokio::test]
async fn a_paused_process_loses_its_lease_and_is_told_when_it_goes_on() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    its_lease_runs_out_and_it_is_told(&[server], &store).await;
}

/// The same row, on a quorum.
#[tokio::test]
async fn a_paused_process_loses_its_lease_on_a_quorum_and_is_told_when_it_goes_on() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    its_lease_runs_out_and_it_is_told(&servers, &store).await;
}

/// RLN: leases of dead processes were kept alive for days (issue 68).
#[tokio::test]
async fn the_lease_of_a_process_that_was_killed_runs_out() {
    let Some(servers) = servers::<3>() else { return };
    let single = one(&servers[0]).await;
    let several = quorum(&servers[..]).await;
    let kinds: [(&dyn LockStore, &[RedisServer]); 2] =
        [(&single, &servers[..1]), (&several, &servers)];
    for (store, servers) in kinds {
        let holder = Holder::start(&urls(servers), &[]).await;
        let former = refused(store).await;
        assert!(former.expires_in.unwrap() <= SHORT);

        holder.kill().await;

        let next = obtain_in_the_end(store, "other").await;
        assert!(next.token > former.token, "{} after {}", next.token, former.token);
        store.release(&next, None).await.unwrap();
    }
}

/// Row "the machine is suspended": time goes on, on one server and on a quorum.
#[tokio::test]
async fn a_lease_has_run_out_for_a_machine_that_was_suspended_for_its_ttl() {
    let Some(servers) = servers::<3>() else { return };
    let single: Arc<dyn LockStore> = Arc::new(one(&servers[0]).await);
    let several: Arc<dyn LockStore> = Arc::new(quorum(&servers).await);
    for store in [single, several] {
        let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
        let locker = locker(store, TTL).with_clock(Arc::clone(&clock) as _);
        let lease = lease(&locker).await;
        assert!(lease.is_held());

        clock.leap(TTL);

        assert!(!lease.is_held(), "at once, before any timer");
        assert_eq!(lease.lost().await.cause, LossCause::Expired);
        drop(lease);
        locker.close().await;
        eventually("free", async || {
            servers.iter().all(|server| !crate::setting::has_it(server)).then_some(())
        })
        .await;
    }
}

/// Row "the client's clock steps": nothing, on one server and on a quorum.
#[tokio::test]
async fn a_step_of_the_clients_clock_changes_nothing() {
    let (Some(servers), Some(library)) = (servers::<3>(), libfaketime()) else { return };
    for servers in [&servers[..1], &servers[..]] {
        let clock = servers[0].folder().join("clients-clock");
        std::fs::write(&clock, "+0").unwrap();
        let environment = [
            ("LD_PRELOAD", library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", clock.clone()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ];
        let mut holder = Holder::start(&urls(servers), &environment).await;
        let beats = || servers[0].command(&format!("HGET {LEASE} beat")).parse::<u64>().ok();

        for step in ["+3600", "-3600", "+0"] {
            std::fs::write(clock.with_extension("written"), step).unwrap();
            std::fs::rename(clock.with_extension("written"), &clock).unwrap();
            let before = beats().unwrap();
            // More than a ttl of it.
            eventually("heartbeats", async || (beats()? > before + 4).then_some(())).await;
        }

        assert!(holder.is_silent().await, "it lost its lease on {}", key());
        holder.kill().await;
        flush(servers);
    }
}
