//! Paused, suspended and killed clients, and their clocks. Rows are those of the README's table *What happens
//! when*.

use std::sync::Arc;
use std::time::Duration;

use lease_core::LossCause;
use lease_core::conformance::SkewedClock;
use lease_core::store::LockStore;
use lease_test_servers::redis::RedisServer;
use lease_test_servers::tools::libfaketime;

use crate::holder::{Holder, SHORT};
use crate::setting::{
    TTL, eventually, flush, key, lease, locker, obtain_eventually, one, quorum, refused, servers,
    urls,
};

async fn paused_holder_loses_its_lease(servers: &[RedisServer], store: &dyn LockStore) {
    let mut holder = Holder::start(&urls(servers), &[]).await;
    let former = holder.token;

    holder.pause().await;
    let next = obtain_eventually(store, "other").await;

    assert!(next.token > former, "{} after {former}", next.token);
    assert!(holder.is_silent().await);
    holder.go_on().await;
    let line = holder.line("lost").await;
    assert!(line.contains(&former.to_string()), "{line}");
    assert!(refused(store).await.holds(&next));
}

/// Row "the process pauses", on one server.
#[tokio::test]
async fn paused_process_loses_its_lease_and_is_notified() {
    let Some([server]) = servers() else { return };
    let store = one(&server).await;
    paused_holder_loses_its_lease(&[server], &store).await;
}

/// Row "the process pauses", on a quorum.
#[tokio::test]
async fn paused_process_loses_its_lease_on_a_quorum() {
    let Some(servers) = servers::<3>() else { return };
    let store = quorum(&servers).await;
    paused_holder_loses_its_lease(&servers, &store).await;
}

/// In `RedLock.net`, the leases of dead processes were extended for days (issue 68).
#[tokio::test]
async fn lease_of_a_killed_process_expires() {
    let Some(servers) = servers::<3>() else { return };
    let single = one(&servers[0]).await;
    let several = quorum(&servers[..]).await;
    let kinds: [(&dyn LockStore, &[RedisServer]); 2] =
        [(&single, &servers[..1]), (&several, &servers)];
    for (store, servers) in kinds {
        let holder = Holder::start(&urls(servers), &[]).await;
        let former = holder.token;
        let reported = store.holder(&key()).await.unwrap().unwrap();
        assert!(reported.expires_in.unwrap() <= SHORT);

        holder.kill().await;

        let next = obtain_eventually(store, "other").await;
        assert!(next.token > former, "{} after {former}", next.token);
        store.release(&next, None).await.unwrap();
    }
}

/// Row "the machine is suspended".
#[tokio::test]
async fn lease_expires_while_the_machine_is_suspended() {
    let Some(servers) = servers::<3>() else { return };
    let single: Arc<dyn LockStore> = Arc::new(one(&servers[0]).await);
    let several: Arc<dyn LockStore> = Arc::new(quorum(&servers).await);
    for store in [single, several] {
        let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
        let locker = locker(store, TTL).with_clock(Arc::clone(&clock) as _);
        let lease = lease(&locker).await;
        assert!(lease.is_held());

        clock.leap(TTL);

        assert!(!lease.is_held(), "the lease is held after its ttl");
        assert_eq!(lease.lost().await.cause, LossCause::Expired);
        drop(lease);
        locker.close().await;
        eventually("free", async || {
            servers.iter().all(|server| !crate::setting::has_lease(server)).then_some(())
        })
        .await;
    }
}

/// Row "the client's clock steps".
#[tokio::test]
async fn clock_step_of_the_client_changes_nothing() {
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
        let beats = || servers[0].last_beat("job");

        for step in ["+3600", "-3600", "+0"] {
            std::fs::write(clock.with_extension("written"), step).unwrap();
            std::fs::rename(clock.with_extension("written"), &clock).unwrap();
            let before = beats();
            eventually("heartbeats", async || (beats() > before + 4).then_some(())).await;
        }

        assert!(holder.is_silent().await, "the holder lost its lease on {}", key());
        holder.kill().await;
        flush(servers);
    }
}
