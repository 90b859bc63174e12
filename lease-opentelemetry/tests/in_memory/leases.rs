//! The metrics of a locker.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_core::{LeaseKey, Locker};
use lease_memory::MemoryStore;
use lease_opentelemetry::LeaseMeter;
use opentelemetry::metrics::MeterProvider;
use tokio::time::sleep;

use crate::Exported;

const TTL: Duration = Duration::from_secs(30);

fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_metric_is_exported() {
    let exported = Exported::new();
    let metrics = LeaseMeter::builder("memory")
        .with_group("leader", |key| key.as_str() == "leader")
        .build(&exported.provider.meter("leases"));
    let store = Faulty::new(MemoryStore::new());
    let locker = Locker::new(store.clone()).with_metrics(Arc::new(metrics));
    assert_eq!(exported.values()["lease_lost_total cause=revoked group=leader"], 0);

    let leader = locker.wait_until_obtained(&key("leader")).await.unwrap();
    assert!(locker.obtain(&key("leader")).await.unwrap().into_lease().is_none());
    let waiter = locker.clone();
    let _waiting = tokio::spawn(async move { waiter.wait_until_obtained(&key("leader")).await });
    let job = locker.obtain(&key("job")).await.unwrap().into_lease().unwrap();
    job.release().await.unwrap();
    sleep(TTL).await;
    let holder = locker.holder(&key("leader")).await.unwrap().unwrap();
    store.every(Call::Heartbeat, Fault::Fail);
    sleep(TTL / 2).await;

    let values = exported.values();
    let expected = [
        ("lease_obtain_total group=leader result=granted", 1),
        ("lease_obtain_total group=leader result=held", 1),
        ("lease_obtain_total group=other result=error", 0),
        ("lease_wait_seconds group=leader", 1),
        ("lease_held_seconds end=released group=other", 1),
        ("lease_held group=leader", 1),
        ("lease_held group=other", 0),
        ("lease_waiters group=leader", 1),
        ("lease_at_risk group=leader", 1),
        ("lease_store_request_seconds operation=holder result=ok store=memory", 1),
    ];
    for (name, value) in expected {
        assert_eq!(values.get(name), Some(&value), "{name}: {values:#?}");
    }
    for name in [
        "lease_heartbeat_seconds",
        "lease_heartbeat_margin_ratio group=leader",
        "lease_heartbeat_failures_total group=leader",
        "lease_store_request_seconds operation=heartbeat result=error store=memory",
    ] {
        assert!(values.get(name).is_some_and(|count| *count > 0), "{name}: {values:#?}");
    }

    store.heal();
    store.inner().evict(&key("leader"), &holder.grant.unwrap()).await.unwrap();
    drop(leader.lost().await);
    let values = exported.values();
    assert_eq!(values["lease_lost_total cause=revoked group=leader"], 1);
    assert_eq!(values["lease_held_seconds end=lost group=leader"], 1);
    assert_eq!(values["lease_at_risk group=leader"], 0);
}
