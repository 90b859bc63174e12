//! Many keys, in a few groups.

use std::sync::Arc;

use lease_core::{LeaseKey, Locker};
use lease_memory::MemoryStore;
use lease_opentelemetry::LeaseMeter;
use opentelemetry::metrics::MeterProvider;

use crate::Exported;

#[tokio::test(start_paused = true)]
async fn number_of_series_does_not_depend_on_the_keys() {
    let exported = Exported::new();
    let metrics = LeaseMeter::builder("memory")
        .with_group("leader", |key| key.as_str() == "leader")
        .with_group("jobs", |key| key.as_str().starts_with("jobs/"))
        .build(&exported.provider.meter("leases"));
    let locker = Locker::new(MemoryStore::new()).with_metrics(Arc::new(metrics));
    let obtain_and_release = async |number: u32| {
        let key: LeaseKey = format!("jobs/{number}").parse().unwrap();
        let lease = locker.obtain(&key).await.unwrap().into_lease().unwrap();
        lease.release().await.unwrap();
    };
    obtain_and_release(0).await;
    let before = exported.values();

    for number in 1..100_000 {
        obtain_and_release(number).await;
    }

    let after = exported.values();
    assert!(before.keys().eq(after.keys()), "{before:#?} {after:#?}");
    assert_eq!(after["lease_obtain_total group=jobs result=granted"], 100_000);
    assert_eq!(after["lease_held_seconds end=released group=jobs"], 100_000);
}
